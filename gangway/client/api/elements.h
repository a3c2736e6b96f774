// The elements of arrays: from the caller's memory to the devices, and back.
//
// Threading: thread-safe. Failure: as Cluster::PutBytes and Array::Get say.
#ifndef GANGWAY_CLIENT_API_ELEMENTS_H_
#define GANGWAY_CLIENT_API_ELEMENTS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"

#include "gangway/client/api/array_state.h"

namespace gangway::api {

Array PutElements(const std::shared_ptr<Session>& session, std::span<const std::byte> bytes,
                  ElementType element_type, const Shape& shape, const Sharding& sharding);

// `room` gives memory for this number of bytes. Once, before any bytes come.
absl::Status GetElements(const ArrayState& array,
                         const std::function<std::byte*(size_t bytes)>& room);

}  // namespace gangway::api

#endif  // GANGWAY_CLIENT_API_ELEMENTS_H_
