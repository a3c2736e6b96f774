// Implementation of thread.h.
#include "gangway/base/thread.h"

#include <pthread.h>
#include <unistd.h>

namespace gangway {

Thread::Thread(const std::string& name, std::function<void()> run) {
  if (World* world = World::installed(); world != nullptr) {
    fiber_ = world->Start(name, std::move(run));
    return;
  }
  thread_ = std::thread([name = name.substr(0, 15), run = std::move(run)] {
    pthread_setname_np(pthread_self(), name.c_str());
    run();
  });
}

void Thread::Join() {
  if (fiber_ != 0) {
    World::installed()->Join(std::exchange(fiber_, 0));
  } else {
    thread_.join();
  }
}

uint64_t ProcessId() {
  World* world = World::installed();
  return world == nullptr ? static_cast<uint64_t>(getpid()) : world->ProcessId();
}

}  // namespace gangway
