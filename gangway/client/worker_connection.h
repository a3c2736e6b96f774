// WorkerConnection: what a link to a worker has from the worker's welcome until it is lost: its sender, the worker's
// memory that this client maps, the places that are reserved there, and the words that the link has not taken yet.
// Words leave in this order: replies to host callbacks, dropped uploads, and what is said of fetched places.
//
// Threading: belongs to the client's event loop, except the sender. Failure: it ends with the link, and all that it
// keeps is dropped; memory that it has found stays mapped for as long as somebody holds it.
#ifndef GANGWAY_CLIENT_WORKER_CONNECTION_H_
#define GANGWAY_CLIENT_WORKER_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "gangway/base/ids.h"
#include "gangway/client/confirming_sender.h"
#include "gangway/client/push.h"
#include "gangway/client/push_queue.h"
#include "gangway/transport/bulk/segment_exchange.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

class WorkerConnection {
 public:
  // `welcome`: the worker's, which names the way to its memory.
  WorkerConnection(SessionId session, std::shared_ptr<ConfirmingSender> sender,
                   const wire::HelloReply& welcome);

  const std::shared_ptr<ConfirmingSender>& sender() const { return sender_; }
  transport::SegmentExchange& segments() { return segments_; }

  // Requests a place of this size for the shard of `push`.
  PlaceRequest RequestPlace(const Push& push, size_t bytes);
  // The memory that the worker grants, if it has this size; null: it grants none.
  std::shared_ptr<std::byte> PlaceOf(const wire::PlaceAnswer& answer, size_t bytes);

  // Requests a place before the push. `placed` is called if the worker grants one.
  void Reserve(const Push& wish, std::function<void(std::shared_ptr<char> place)> placed);
  // Gives `pushing` the place that was reserved for it. True: the worker has not answered yet.
  bool TakeReservation(Pushing& pushing);
  // The worker's answer to a reservation. False: there is none, or its push has taken it.
  bool OnReserved(PushName name, const wire::PlaceAnswer& answer);
  void Withdraw(UploadId upload);

  // To be sent by SendWords.
  void Reply(wire::HostCallbackReply reply);
  void Say(wire::Bulk word) { words_.push_back(std::move(word)); }
  // Sends what waits, and `dropped`, uploads of which the worker is to free the bytes. False: the link takes no more
  // for now.
  bool SendWords(std::deque<UploadId>& dropped);

 private:
  struct Reservation {
    uint64_t bytes = 0;
    std::function<void(std::shared_ptr<char> place)> placed;
    std::shared_ptr<std::byte> target;  // null: not answered yet
  };

  const SessionId session_;
  const std::shared_ptr<ConfirmingSender> sender_;
  transport::SegmentExchange segments_;
  std::map<PushName, Reservation> reserved_;
  std::deque<wire::Frame> replies_;  // to host callbacks
  std::deque<wire::Bulk> words_;     // about fetched places
};

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_WORKER_CONNECTION_H_
