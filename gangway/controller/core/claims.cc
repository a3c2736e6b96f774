// Implementation of claims.h.
#include "gangway/controller/core/claims.h"

namespace gangway::controller {

void Claims::Open(SessionId session, Owner owner) {
  if (!isolates_) return;
  ++sessions_[owner];
  owners_[session] = std::move(owner);
}

std::vector<size_t> Claims::Close(SessionId session, std::optional<Owner>& last_of) {
  auto found = owners_.find(session);
  if (found == owners_.end()) return {};
  const Owner owner = std::move(found->second);
  owners_.erase(found);
  auto open = sessions_.find(owner);
  if (--open->second > 0) {
    for (std::optional<Claim>& claim : claims_)
      if (claim) claim->sessions.erase(session);
    return {};
  }
  sessions_.erase(open);
  std::vector<size_t> ended;
  for (size_t worker = 0; worker < claims_.size(); ++worker) {
    if (!claims_[worker] || claims_[worker]->owner != owner) continue;
    claims_[worker].reset();
    ended.push_back(worker);
  }
  last_of = owner;
  return ended;
}

const Owner& Claims::OwnerOf(SessionId session) const {
  static const Owner none;
  auto found = owners_.find(session);
  return found == owners_.end() ? none : found->second;
}

const Claims::Claim* Claims::Of(size_t worker) const {
  return worker < claims_.size() && claims_[worker] ? &*claims_[worker] : nullptr;
}

const Claims::Claim* Claims::Foreign(size_t worker, const Owner& owner) const {
  const Claim* claim = Of(worker);
  return claim != nullptr && claim->owner != owner ? claim : nullptr;
}

bool Claims::Use(size_t worker, SessionId session, std::string_view client, Time now) {
  if (!isolates_) return false;
  std::optional<Claim>& claim = claims_[worker];
  if (!claim) {
    claim = Claim{.owner = OwnerOf(session),
                  .first = session,
                  .client = std::string(client),
                  .since = now,
                  .sessions = {}};
  }
  return claim->sessions.insert(session).second;
}

}  // namespace gangway::controller
