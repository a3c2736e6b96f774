// For tests of what clients' streams keep: a stream over a link that records what it is sent, and the client at its
// other end, which may map shared memory. Belongs to one thread at a time.
#ifndef GANGWAY_WORKER_SERVICE_TRANSFER_CLIENT_STREAM_TEST_UTIL_H_
#define GANGWAY_WORKER_SERVICE_TRANSFER_CLIENT_STREAM_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "gangway/base/executor.h"
#include "gangway/transport/bulk/bulk_link.h"
#include "gangway/transport/bulk/segment_exchange.h"
#include "gangway/transport/recording_link_test_util.h"
#include "gangway/worker/service/transfer/client_stream.h"

namespace gangway::worker {

using transport::RecordingLink;

// A stream whose Hello has been answered, with the link under it and the client's end of the shared memory.
struct TestStream {
  explicit TestStream(SessionId session, transport::DescriptorListener* listener = nullptr)
      : stream(session, "script",
               std::make_shared<transport::BulkLink>(link, transport::FrameSender::Stamp{})) {
    stream.Open(listener);
    EXPECT_EQ(link->frames.size(), 1u);
    client.Connect(link->frames[0].hello_reply());
    link->frames.clear();
  }

  const std::shared_ptr<RecordingLink> link = std::make_shared<RecordingLink>();
  transport::SegmentExchange client;
  ClientStream stream;
};

inline void RunOn(EventLoop& loop, const std::function<void()>& task) {
  std::promise<void> done;
  loop.Post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

}  // namespace gangway::worker

#endif  // GANGWAY_WORKER_SERVICE_TRANSFER_CLIENT_STREAM_TEST_UTIL_H_
