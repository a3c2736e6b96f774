// What watches the socket of a local link: the IoThread, from Begin to End; and an event loop, once the reads have
// moved to it. Each change of the socket is reported once (edge-triggered epoll), and again when that is asked for.
//
// Not thread-safe. The socket is open until End.
#ifndef GANGWAY_TRANSPORT_LOCAL_SOCKET_WATCHES_H_
#define GANGWAY_TRANSPORT_LOCAL_SOCKET_WATCHES_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"

#include "gangway/base/poller.h"
#include "gangway/transport/local/io_thread.h"

namespace gangway::transport {

class SocketWatches {
 public:
  // `io` is not used after End.
  SocketWatches(IoThread* io, int socket);

  // The IoThread watches from now on. UNAVAILABLE: the system cannot watch another socket.
  absl::Status Begin(std::shared_ptr<IoThread::Watched> link);
  void End();  // once

  // The loop that may take over the reads; it has not begun.
  void SetLoop(std::shared_ptr<Poller> loop) { loop_ = std::move(loop); }
  // The loop reads from now on, if there is one and it can watch another socket; else the IoThread goes on.
  void MoveReads(const std::shared_ptr<Poller::Watched>& reader);
  void ForgetReads();  // the loop reads no longer
  bool loop_reads() const { return loop_id_ != 0; }
  // Bytes have arrived to which the loop has not come yet.
  bool HasUnread() const;

  // The socket is full: whether the IoThread waits for room in it.
  bool awaits_room() const { return awaits_room_; }
  void AwaitRoom();
  void StopAwaitingRoom();

  // Reports again what the IoThread watches; and what arrives, to what reads.
  void WatchAgain();
  void WatchReadsAgain();

 private:
  enum class State { kNotBegun, kBegun, kEnded };

  uint32_t Interest() const;

  IoThread* const io_;
  const uint64_t io_id_;
  const int socket_;
  State state_ = State::kNotBegun;
  bool awaits_room_ = false;
  std::shared_ptr<Poller> loop_;  // null: the IoThread reads
  uint64_t loop_id_ = 0;          // before the loop reads, and after that: 0
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_LOCAL_SOCKET_WATCHES_H_
