// Fuzzes the files of ExecutableCache: a valid entry is found; any other bytes count as missing.
#include <google/protobuf/stubs/logging.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/base/sha256.h"
#include "gangway/compiler/executable_cache.h"

namespace gangway::fuzz {
namespace {

constexpr char kKey[] = "key";

// A temporary folder per process, removed when it exits.
struct Folder {
  Folder() {
    spdlog::set_level(spdlog::level::off);
    google::protobuf::SetLogHandler(nullptr);
    GANGWAY_CHECK(mkdtemp(path) != nullptr, "a temporary folder");
    cache = std::make_unique<compiler::ExecutableCache>(path, 1 << 20);
  }
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }
  std::string Entry() const { return std::string(path) + "/" + kKey + ".executable"; }
  char path[32] = "/tmp/gangway-fuzz-XXXXXX";
  std::unique_ptr<compiler::ExecutableCache> cache;
};

std::string Signed(const std::string& payload) {
  return "GANGWAY1" + Sha256Hex(kKey + Sha256Hex(payload)) + payload;
}

}  // namespace

// The first byte says whether the rest is a whole file, or the payload of a file with a valid
// checksum.
std::vector<std::string> Seeds() {
  wire::CompileResult result;
  result.mutable_info()->set_name("f");
  const std::string payload = result.SerializeAsString();
  return {"p" + payload, "f" + Signed(payload), "fGANGWAY1"};
}

}  // namespace gangway::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace fuzz = gangway::fuzz;
  static const fuzz::Folder folder;
  const std::string rest(fuzz::View(data, size).substr(size == 0 ? 0 : 1));
  const bool whole = size > 0 && data[0] % 2 == 0;
  std::ofstream(folder.Entry(), std::ios::binary) << (whole ? rest : fuzz::Signed(rest));
  auto found = folder.cache->Lookup(fuzz::kKey);
  gangway::wire::CompileResult expected;
  if (!whole) {
    GANGWAY_CHECK(found.has_value() == expected.ParseFromString(rest),
                  "a payload with a valid checksum is found if it parses");
  }
  GANGWAY_CHECK(!found.has_value() || found->from_cache(), "a found entry has from_cache set");
  return 0;
}
