// The client's public types <-> wire messages.
#ifndef GANGWAY_CLIENT_CONVERT_H_
#define GANGWAY_CLIENT_CONVERT_H_

#include <memory>
#include <string>

#include "gangway/client/client.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::client {

std::string WorkerName(const wire::Worker& worker);  // "island0/worker1"
ClusterInfo ToClusterInfo(const wire::HelloReply& reply);
void ToWire(const ArraySpec& spec, wire::ArraySpec* to);
std::shared_ptr<const ExecutableInfo> ToExecutableInfo(wire::ExecutableInfo from);

}  // namespace gangway::client

#endif  // GANGWAY_CLIENT_CONVERT_H_
