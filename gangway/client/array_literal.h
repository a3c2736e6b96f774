// 7_array: the handle of an array in a test, which chooses it as a front door may.
#ifndef GANGWAY_CLIENT_ARRAY_LITERAL_H_
#define GANGWAY_CLIENT_ARRAY_LITERAL_H_

#include "gangway/client/client.h"

namespace gangway {

constexpr ArrayHandle operator""_array(unsigned long long number) { return ArrayHandle(number); }

}  // namespace gangway

#endif  // GANGWAY_CLIENT_ARRAY_LITERAL_H_
