// Eight threads on one client: what they do with handles of their own and of all.
#include <atomic>
#include <barrier>
#include <thread>

#include "tests/native/conformance/plugin.h"

namespace conformance {
namespace {

using testing::ElementsAre;

constexpr int kThreads = 8;

class ThreadsTest : public Conformance {
 protected:
  // Begins all at once.
  template <typename Body>
  static void InThreads(Body body) {
    std::barrier start(kThreads);
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&start, &body, i] {
        start.arrive_and_wait();
        body(i);
      });
    }
  }
};

TEST_F(ThreadsTest, ComputeWithOneExecutable) {
  const Loaded twice = Compile(kTwice);
  InThreads([&](int thread) {
    for (int round = 0; round < 20; ++round) {
      const auto value = static_cast<float>(thread * 100 + round);
      const Buffer argument = Upload(std::vector<float>(4, value));
      const Called called = Call(twice, {{argument.get()}});
      ASSERT_TRUE(called.said.ok()) << called.said.message;
      EXPECT_THAT(Values<float>(called.results[0][0]), testing::Each(2 * value));
      EXPECT_TRUE(Await(called.ended[0]).ok());
    }
  });
}

TEST_F(ThreadsTest, ReadAndCopyOneBuffer) {
  const Buffer buffer = Upload(std::vector<float>{1, 2, 3, 4});
  InThreads([&](int thread) {
    for (int round = 0; round < 10; ++round) {
      EXPECT_THAT(Values<float>(buffer), ElementsAre(1, 2, 3, 4));
      auto copy = Make<PJRT_Buffer_CopyToMemory_Args>();
      copy.buffer = buffer.get();
      copy.dst_memory = Memory(device(static_cast<size_t>(thread)));
      Do(Api().PJRT_Buffer_CopyToMemory, copy);
      EXPECT_THAT(Values<float>(Buffer(copy.dst_buffer)), ElementsAre(1, 2, 3, 4));
    }
  });
}

// Each read gives the bytes or an error.
TEST_F(ThreadsTest, DeleteABufferThatOthersRead) {
  for (int round = 0; round < 10; ++round) {
    const Buffer buffer = Upload(std::vector<float>{1, 2, 3, 4});
    InThreads([&](int thread) {
      if (thread == 0) return Delete(buffer);
      std::vector<float> read(4);
      const Said said = Read(buffer.get(), read.data(), 16);
      if (said.ok()) {
        EXPECT_THAT(read, ElementsAre(1, 2, 3, 4));
      } else {
        EXPECT_THAT(said.message, testing::HasSubstr("deleted"));
      }
    });
    EXPECT_TRUE(IsDeleted(buffer));
  }
}

// One call of all gets it.
TEST_F(ThreadsTest, DonateOneBufferOnce) {
  const Loaded donating = Compile(kDonating);
  for (int round = 0; round < 10; ++round) {
    const Buffer donated = Upload(std::vector<float>{1, 2, 3, 4}),
                 other = Upload(std::vector<float>(4));
    std::atomic<int> done = 0;
    InThreads([&](int) {
      const Called called = Call(donating, {{donated.get(), other.get()}});
      if (!called.said.ok()) return;
      done.fetch_add(1);
      EXPECT_THAT(Values<float>(called.results[0][0]), ElementsAre(1, 2, 3, 4));
    });
    EXPECT_EQ(done, 1);
  }
}

TEST_F(ThreadsTest, AwaitOneEvent) {
  const Loaded twice = Compile(kTwice);
  for (int round = 0; round < 10; ++round) {
    const Buffer argument = Upload(std::vector<float>{1, 2, 3, 4});
    const Called called = Call(twice, {{argument.get()}});
    std::atomic<int> heard = 0;
    InThreads([&](int thread) {
      auto subscribe = Make<PJRT_Event_OnReady_Args>();
      subscribe.event = called.ended[0].get();
      subscribe.user_arg = &heard;
      subscribe.callback = [](PJRT_Error* error, void* count) {
        EXPECT_TRUE(Take(error).ok());
        auto* const self = static_cast<std::atomic<int>*>(count);
        self->fetch_add(1);
        self->notify_all();
      };
      if (thread % 2 == 0) return Do(Api().PJRT_Event_OnReady, subscribe);
      EXPECT_TRUE(Await(called.ended[0]).ok());
    });
    for (int seen = heard; seen < kThreads / 2; seen = heard) heard.wait(seen);
  }
}

TEST_F(ThreadsTest, CompileTheSameAndOthers) {
  InThreads([&](int thread) {
    const Loaded mine = Compile(kTwice, {.devices = {thread}});
    const Loaded same = Compile(kTwice);
    const Buffer argument = Upload(std::vector<float>{1, 2, 3, 4}, static_cast<size_t>(thread));
    const Called called = Call(mine, {{argument.get()}});
    ASSERT_TRUE(called.said.ok()) << called.said.message;
    EXPECT_THAT(Values<float>(called.results[0][0]), ElementsAre(2, 4, 6, 8));
  });
}

TEST_F(ThreadsTest, HaveClientsOfTheirOwn) {
  InThreads([&](int) {
    const Client own = NewClient();
    ASSERT_NE(own, nullptr);
    auto devices = Make<PJRT_Client_Devices_Args>();
    devices.client = own.get();
    Do(Api().PJRT_Client_Devices, devices);
    EXPECT_EQ(devices.num_devices, kDeviceCount);
  });
}

}  // namespace
}  // namespace conformance
