// Chance that nobody can foretell: keys, secrets and numbers that no two processes may share. In a World, the seed's.
#ifndef GANGWAY_BASE_RANDOM_H_
#define GANGWAY_BASE_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace gangway {

uint64_t RandomBits();
std::string RandomBytes(size_t size);

}  // namespace gangway

#endif  // GANGWAY_BASE_RANDOM_H_
