// Blocks of a script: they are of all clients of the process, and tell what became of them.
#include "gangway/frontdoor/pjrt/program_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "gangway/frontdoor/pjrt/cluster.h"
#include "gangway/frontdoor/pjrt/process_clients.h"
#include "gangway/frontdoor/pjrt/recording_client.h"

namespace gangway::pjrt {
namespace {

using testing::ElementsAre;

// A client of the process.
struct Script {
  explicit Script(ProgramCapture capture = {}) {
    auto recording = std::make_unique<RecordingClient>(1);
    session = recording.get();
    session->capture = std::move(capture);
    client = NewClient(std::move(recording));
    AddProcessClient(client.get());
  }
  ~Script() {
    RemoveProcessClient(client.get());
    client->drops->Close();
  }

  RecordingClient* session;
  std::unique_ptr<PJRT_Client> client;
};

const GangwayProgramsExtension& Extension() {
  return *reinterpret_cast<const GangwayProgramsExtension*>(ProgramsExtension());
}

TEST(ProgramBlocksTest, ABlockIsOfAllClients) {
  Script one({.launches = 1, .operations_sent_as_they_came = 2, .cut_by = ""});
  Script other({.launches = 3, .operations_sent_as_they_came = 4, .cut_by = "await"});
  Script third({.cut_by = "fetch"});
  Extension().begin();
  GangwayProgramCapture capture;
  Extension().end(&capture);
  for (const Script* each : {&one, &other, &third})
    EXPECT_THAT(each->session->Take(), ElementsAre("begin program", "end program"));
  EXPECT_EQ(capture.launches, 4u);
  EXPECT_EQ(capture.operations_sent_as_they_came, 6u);
  EXPECT_THAT(std::string(capture.cut_by), testing::AnyOf("await", "fetch"))
      << "the first client's";
}

TEST(ProgramBlocksTest, TheReasonIsCutToItsRoom) {
  const Script script({.cut_by = std::string(1000, 'x')});
  GangwayProgramCapture capture;
  std::memset(&capture, 0xff, sizeof(capture));
  Extension().end(&capture);
  EXPECT_EQ(std::string(capture.cut_by), std::string(sizeof(capture.cut_by) - 1, 'x'));
}

TEST(ProgramBlocksTest, WithoutAClientABlockIsEmpty) {
  {
    const Script gone;
  }
  GangwayProgramCapture capture;
  std::memset(&capture, 0xff, sizeof(capture));
  Extension().begin();
  Extension().end(&capture);
  EXPECT_EQ(capture.launches, 0u);
  EXPECT_EQ(capture.operations_sent_as_they_came, 0u);
  EXPECT_EQ(std::string(capture.cut_by), "");
}

TEST(ProgramBlocksTest, AForkedChildHasNoClients) {
  const Script script({.launches = 1});
  const pid_t child = fork();
  if (child == 0) {
    GangwayProgramCapture capture;
    Extension().begin();
    Extension().end(&capture);
    _exit(capture.launches == 0 && script.session->Take().empty() ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace gangway::pjrt
