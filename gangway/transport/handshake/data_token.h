// Data tokens: with its token, a client opens the data streams of its own session and of no other
// (OB-3). Session numbers can be guessed, tokens cannot. A token is the HMAC-SHA-256 of the
// session's number under a key that the head makes at its start and sends to its workers, so a
// worker checks tokens without knowing the sessions.
//
// Threading: functions without state. Failure: a key that cannot be made is a failed check.
#ifndef GANGWAY_TRANSPORT_HANDSHAKE_DATA_TOKEN_H_
#define GANGWAY_TRANSPORT_HANDSHAKE_DATA_TOKEN_H_

#include <string>
#include <string_view>

#include "gangway/base/ids.h"

namespace gangway::transport {

// 32 random bytes.
std::string NewDataKey();

std::string DataToken(std::string_view key, SessionId session);

// Whether `token` is the session's token. Takes the same time for every wrong token of the right
// size. An empty key matches nothing.
bool IsDataToken(std::string_view key, SessionId session, std::string_view token);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_HANDSHAKE_DATA_TOKEN_H_
