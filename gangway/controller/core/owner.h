// Whom a session belongs to: what its programs do is counted against its owner, and where owners are isolated, a worker
// is claimed for one. Pure. Tenants would take this class's place.
#ifndef GANGWAY_CONTROLLER_CORE_OWNER_H_
#define GANGWAY_CONTROLLER_CORE_OWNER_H_

#include <compare>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

#include "gangway/base/ids.h"
#include "gangway/base/shown_name.h"

namespace gangway::controller {

// The name in its client's certificate. Without one, sessions cannot be told to be of one owner, and each is an owner
// of its own. A default owner has no sessions.
class Owner {
 public:
  Owner() = default;
  Owner(std::string_view certificate, SessionId session)
      : certificate_(certificate), session_(certificate.empty() ? session : SessionId()) {}

  bool has_certificate() const { return !certificate_.empty(); }
  // For people. Differs between owners.
  std::string Text() const {
    return has_certificate() ? absl::StrCat("the certificate ", ShownName(certificate_))
                             : absl::StrCat("session ", session_);
  }

  friend auto operator<=>(const Owner&, const Owner&) = default;
  friend bool operator==(const Owner&, const Owner&) = default;

 private:
  std::string certificate_;
  SessionId session_;
};

}  // namespace gangway::controller

#endif  // GANGWAY_CONTROLLER_CORE_OWNER_H_
