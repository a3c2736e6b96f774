// Cluster: a session with a Gangway cluster, as C++ programs use it.
//
//   auto cluster = Connect({.address = "unix:/run/gangway/control.sock", .token = token, .name = "train"});
//   Mesh mesh({0, 1}, {{"x", 2}});
//   Array x = cluster->Put<float>({1, 2, 3, 4}, {4}, Sharding(mesh, {"x"}));
//   auto square = cluster->Compile(kText, mesh, {.results = {Sharding(mesh, {"x"})}});
//   Array y = (*square)(x);
//   Result<std::vector<float>> values = y.Get<float>();
//
// Threading: a value; copies share the session, and any thread may use them. The session ends, and frees everything in
// the cluster that it owned (OB-2), when the last copy is gone, and with it all arrays, functions and programs of it.
// A child that the process forks has no session: everything fails there with UNAVAILABLE.
// Failure: the session ends, too, when the controller is gone; all arrays of it then fail with UNAVAILABLE. It is not
// opened again: Connect anew, and put the arrays again.
#ifndef GANGWAY_CLUSTER_H_
#define GANGWAY_CLUSTER_H_

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "array.h"
#include "client.h"
#include "cluster_options.h"
#include "element_type.h"
#include "function.h"
#include "sharding.h"
#include "status.h"

namespace gangway {

namespace api {
class Session;
}  // namespace api

// A session, and its devices.
class Cluster {
 public:
  // What the cluster is, as it was when the session was opened: platform, devices by number, workers that were down.
  const ClusterInfo& info() const;
  // All devices of the session, by number.
  std::span<const DeviceInfo> devices() const { return info().devices; }

  // Makes an array of all its elements, row-major, copied before the call returns: each device gets its part. The array
  // fails with INVALID_ARGUMENT if there are more or fewer elements than `shape` says, or the sharding does not fit it,
  // or names a device that the session does not have.
  template <Element T>
  Array Put(const std::vector<T>& values, const Shape& shape, const Sharding& sharding) const {
    return PutBytes(std::as_bytes(std::span(values)), ElementTypeOf<T>::value, shape, sharding);
  }
  // The same, of elements that are in a row anywhere.
  template <Element T>
  Array Put(std::span<const T> values, const Shape& shape, const Sharding& sharding) const {
    return PutBytes(std::as_bytes(values), ElementTypeOf<T>::value, shape, sharding);
  }
  // The same, of bytes: elements of any type, in the byte order of the host.
  Array PutBytes(std::span<const std::byte> bytes, ElementType type, const Shape& shape,
                 const Sharding& sharding) const;

  // Compiles StableHLO, MLIR's text or bytecode, for the devices of the mesh, and waits for that: milliseconds if the
  // cluster has compiled the same before. INVALID_ARGUMENT: the compiler's own text (UNKNOWN for text that it cannot
  // parse), or what is wrong with the mesh or with the options. UNIMPLEMENTED: the function cannot span the workers
  // that have these devices, which it names. UNAVAILABLE: the compiler died of it, or the session is lost.
  Result<Function> Compile(std::string_view stablehlo, const Mesh& mesh,
                           const FunctionOptions& options = {}) const;

  // Waits until all these arrays are there, by one question for all of them. The first failure among them, in their
  // order: see Array::Wait.
  Status Wait(std::span<const Array> arrays) const;
  // The same, of arrays that are named one by one: Wait({x, y}).
  Status Wait(std::initializer_list<Array> arrays) const {
    return Wait(std::span(arrays.begin(), arrays.size()));
  }

 private:
  friend class api::Session;
  explicit Cluster(std::shared_ptr<api::Session> session) : session_(std::move(session)) {}

  std::shared_ptr<api::Session> session_;
};

// Opens a session; blocks until it is open, at most 30 s. Errors: those of ConnectClient (connect.h).
Result<Cluster> Connect(const ClusterOptions& options);

}  // namespace gangway

#endif  // GANGWAY_CLUSTER_H_
