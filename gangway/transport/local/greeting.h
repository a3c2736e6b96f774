// The greeting that both ends of a local link send first, and what has arrived of it at the accepting end.
#ifndef GANGWAY_TRANSPORT_LOCAL_GREETING_H_
#define GANGWAY_TRANSPORT_LOCAL_GREETING_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace gangway::transport {

// The number is the version of the format that follows.
inline constexpr std::string_view kGreeting = "gangway\x01";

// Not thread-safe.
class IncomingGreeting {
 public:
  enum class State {
    kIncomplete,
    kComplete,
    kOther,  // the peer does not speak this protocol
  };

  // How many bytes belong to the greeting: what follows them is for the next reader.
  size_t left() const { return kGreeting.size() - arrived_.size(); }
  // At most left() bytes that have arrived.
  State Take(std::string_view bytes) {
    arrived_.append(bytes);
    if (arrived_ != kGreeting.substr(0, arrived_.size())) return State::kOther;
    return left() == 0 ? State::kComplete : State::kIncomplete;
  }

 private:
  std::string arrived_;
};

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_LOCAL_GREETING_H_
