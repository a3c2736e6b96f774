// Implementation of claims.h.
#include "gangway/controller/core/claims.h"

namespace gangway::controller {

void Claims::Open(const Owner& owner) {
  if (isolates_) ++sessions_[owner];
}

std::optional<std::vector<size_t>> Claims::Close(SessionId session, const Owner& owner) {
  auto open = sessions_.find(owner);
  if (open == sessions_.end()) return std::nullopt;
  if (--open->second > 0) {
    for (std::optional<Claim>& claim : claims_)
      if (claim) claim->sessions.erase(session);
    return std::nullopt;
  }
  sessions_.erase(open);
  std::vector<size_t> ended;
  for (size_t worker = 0; worker < claims_.size(); ++worker) {
    if (!claims_[worker] || claims_[worker]->owner != owner) continue;
    claims_[worker].reset();
    ended.push_back(worker);
  }
  return ended;
}

const Claims::Claim* Claims::Of(size_t worker) const {
  return worker < claims_.size() && claims_[worker] ? &*claims_[worker] : nullptr;
}

const Claims::Claim* Claims::Foreign(size_t worker, const Owner& owner) const {
  const Claim* claim = Of(worker);
  return claim != nullptr && claim->owner != owner ? claim : nullptr;
}

bool Claims::Use(size_t worker, SessionId session, const Owner& owner, std::string_view client,
                 Time now) {
  if (!isolates_) return false;
  std::optional<Claim>& claim = claims_[worker];
  if (!claim) {
    claim = Claim{.owner = owner,
                  .first = session,
                  .client = std::string(client),
                  .since = now,
                  .sessions = {}};
  }
  return claim->sessions.insert(session).second;
}

}  // namespace gangway::controller
