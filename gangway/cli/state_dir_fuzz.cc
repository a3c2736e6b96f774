// Fuzzes a cluster's state folder with foreign content: Supervisor() returns a valid pid or an
// error, and Read returns the file's text.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/cli/state_dir.h"

namespace gangway::fuzz {
namespace {

// A temporary folder per process, removed at its end.
struct Folder {
  Folder() {
    GANGWAY_CHECK(mkdtemp(path) != nullptr, "a temporary folder");
    state = std::make_unique<cli::StateDir>(path, 1);
    GANGWAY_CHECK(state->Lock().ok(), "its lock");
  }
  ~Folder() {
    state.reset();
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }
  char path[32] = "/tmp/gangway-fuzz-XXXXXX";
  std::unique_ptr<cli::StateDir> state;
};

}  // namespace

std::vector<std::string> Seeds() { return {"4711\n", "127.0.0.1:1234\n\n", "-1", "4711 4712"}; }

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace cli = gangway::cli;
  static const gangway::fuzz::Folder folder;
  const std::string text(gangway::fuzz::View(data, size));
  std::ofstream(folder.state->File(cli::kSupervisorPid), std::ios::binary) << text;
  auto read = folder.state->Read(cli::kSupervisorPid);
  GANGWAY_CHECK(read.ok() && text.starts_with(*read), "the file, without newlines at its end");
  auto supervisor = folder.state->Supervisor();
  GANGWAY_CHECK(!supervisor.ok() || *supervisor > 1, "a pid that may be signalled, or an error");
  return 0;
}
