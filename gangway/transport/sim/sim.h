// A simulated network: links with delays that come from a seed (RandomBits), and faults of single links and of whole
// processes. It runs in a FiberWorld's virtual time, and in real time, too.
//
// Each frame takes a time of its own, but keeps its place on its link; links overtake one another. A fault between two
// frames stands for one at any byte between them, since a receiver never sees part of a frame.
//
// Threading: any thread. One loop delivers everything and calls Accept.
#ifndef GANGWAY_TRANSPORT_SIM_SIM_H_
#define GANGWAY_TRANSPORT_SIM_SIM_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gangway/transport/transport.h"

namespace gangway::transport {

struct SimLinkState {
  uint64_t id = 0;
  std::string client, server;  // processes
  std::string address;
  uint64_t frames_to_server = 0, frames_to_client = 0;  // sent
};

struct SimNetworkOptions {
  std::chrono::microseconds delay_min{20}, delay_max{400};  // of a frame
  uint64_t bytes_per_second = uint64_t{1} << 30;            // of a link, in each direction
  size_t pending_bytes_max = size_t{4} << 20;               // delivered and not yet taken
  size_t message_bytes_max = size_t{1} << 30;               // of a frame
  // How long after nothing passes any more the ends of a link learn of it.
  std::chrono::milliseconds silence_max{5000};
  // Sees each frame before it is sent, on the sender's thread.
  std::function<void(const SimLinkState&, bool to_server, const wire::Frame&)> on_send;
};

class SimNetwork {
 public:
  explicit SimNetwork(const SimNetworkOptions& options = {});
  ~SimNetwork();  // after its transports

  // The network as one process sees it. Several processes have different names. An address is a name that no other
  // listener has; one that ends with ":0" gets a number in place of the 0. Destroying the transport ends its links.
  std::unique_ptr<Transport> Join(const std::string& process);

  using LinkState = SimLinkState;
  std::vector<LinkState> Links() const;  // the open ones, in the order of their ids

  // Both ends see UNAVAILABLE soon; what is on the way is lost.
  void Reset(uint64_t link);
  // One end sees the reset. Nothing passes any more, and the other end learns it after silence_max.
  void ResetOneEnd(uint64_t link, bool client);
  // Nothing arrives in the given directions from now on. After silence_max, the link is reset; Restore before that
  // delivers what is held.
  void Silence(uint64_t link, bool to_server, bool to_client);
  void Restore(uint64_t link);
  // Everything sent from now on takes this much longer.
  void Delay(uint64_t link, std::chrono::microseconds more);

  // What the peers of a killed process see: its links are reset, and it has none ever after.
  void Kill(const std::string& process);
  // No process can connect to it: attempts wait until their limit, until this is called with false. Open links stay.
  void Shield(const std::string& process, bool unreachable);

 private:
  class Impl;
  class ProcessTransport;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_SIM_SIM_H_
