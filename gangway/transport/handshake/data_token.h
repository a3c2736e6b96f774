// What lets a client open the data stream of its own session, and of no other (OB-3): session
// numbers can be guessed, tokens cannot. A token is the session's number under a key (HMAC-SHA-256)
// that the head makes at its start and tells its workers; so a worker checks tokens without being
// told of sessions.
//
// Threading: functions without state. Failure: a key that could not be made is a failed check,
// since nothing may go on without it.
#ifndef GANGWAY_TRANSPORT_HANDSHAKE_DATA_TOKEN_H_
#define GANGWAY_TRANSPORT_HANDSHAKE_DATA_TOKEN_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace gangway::transport {

// 32 random bytes.
std::string NewDataKey();

std::string DataToken(std::string_view key, uint64_t session);

// Whether `token` is the session's. Takes the same time for every wrong token. Without a key
// nothing matches.
bool IsDataToken(std::string_view key, uint64_t session, std::string_view token);

}  // namespace gangway::transport

#endif  // GANGWAY_TRANSPORT_HANDSHAKE_DATA_TOKEN_H_
