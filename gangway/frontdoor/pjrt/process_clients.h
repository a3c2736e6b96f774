// The clients of this process: what concerns all sessions of a script, whichever of its clients makes them.
//
// Threading: any thread. In a forked child, where a thread of the parent may have left the lock locked, there are none.
#ifndef GANGWAY_FRONTDOOR_PJRT_PROCESS_CLIENTS_H_
#define GANGWAY_FRONTDOOR_PJRT_PROCESS_CLIENTS_H_

#include <functional>

#include "pjrt_c_api.h"

namespace gangway::pjrt {

void AddProcessClient(PJRT_Client* client);
void RemoveProcessClient(PJRT_Client* client);

// Under the lock, so that no client ends during it.
void ForEachProcessClient(const std::function<void(const PJRT_Client& client)>& each);

}  // namespace gangway::pjrt

#endif  // GANGWAY_FRONTDOOR_PJRT_PROCESS_CLIENTS_H_
