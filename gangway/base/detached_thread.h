// A thread that is not joined: for a task that may never return, such as a user's function. The task shares ownership
// of all that it uses. Not in a World, whose threads all end.
#ifndef GANGWAY_BASE_DETACHED_THREAD_H_
#define GANGWAY_BASE_DETACHED_THREAD_H_

#include <functional>
#include <thread>
#include <utility>

namespace gangway {

inline void RunDetached(std::function<void()> run) { std::thread(std::move(run)).detach(); }

}  // namespace gangway

#endif  // GANGWAY_BASE_DETACHED_THREAD_H_
