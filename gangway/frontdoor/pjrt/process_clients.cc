// Implementation of process_clients.h.
#include "gangway/frontdoor/pjrt/process_clients.h"

#include <set>

#include "gangway/base/fork.h"
#include "gangway/base/mutex.h"

namespace gangway::pjrt {
namespace {

struct Clients {
  const uint64_t fork_generation = ForkGeneration();
  Mutex mutex;
  std::set<PJRT_Client*> all GANGWAY_GUARDED_BY(mutex);
};

Clients& TheClients() {
  static Clients& clients = *new Clients;
  return clients;
}

}  // namespace

void AddProcessClient(PJRT_Client* client) {
  Clients& clients = TheClients();
  MutexLock lock(clients.mutex);
  clients.all.insert(client);
}

void RemoveProcessClient(PJRT_Client* client) {
  Clients& clients = TheClients();
  MutexLock lock(clients.mutex);
  clients.all.erase(client);
}

void ForEachProcessClient(const std::function<void(const PJRT_Client& client)>& each) {
  Clients& clients = TheClients();
  if (ForkGeneration() != clients.fork_generation) return;
  MutexLock lock(clients.mutex);
  for (const PJRT_Client* client : clients.all) each(*client);
}

}  // namespace gangway::pjrt
