// Random numbers that are the same on every machine: all of a simulated run follows from its seed.
#ifndef GANGWAY_SIMULATION_RANDOM_H_
#define GANGWAY_SIMULATION_RANDOM_H_

#include <cstdint>
#include <vector>

namespace gangway::simulation {

// One step of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
// 2014).
constexpr uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix(seed)) {}

  uint64_t Next() { return Mix(state_ += 0x9e3779b97f4a7c15u); }
  uint64_t Below(uint64_t limit) { return Next() % limit; }
  uint64_t Between(uint64_t low, uint64_t high) {
    return low + Below(high - low + 1);
  }  // both ends included
  bool Percent(uint64_t chance) { return Below(100) < chance; }
  template <typename List>
  auto& Pick(List& list) {
    return list[Below(list.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_RANDOM_H_
