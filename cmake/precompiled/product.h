// What most sources of the product include, compiled once (see GangwayTargets.cmake). Nothing may rely on it: a file
// includes what it uses, and builds without this header prove it.
#ifndef CMAKE_PRECOMPILED_PRODUCT_H_
#define CMAKE_PRECOMPILED_PRODUCT_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

#include "gangway/wire/wire.pb.h"

#endif  // CMAKE_PRECOMPILED_PRODUCT_H_
