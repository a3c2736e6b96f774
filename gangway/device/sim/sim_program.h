// A declared function for the simulated device: shapes, cost, whether it is a collective. Immutable
// data, pure functions.
//
// Text form, one statement a line:
//
//     sim 1                       # always first; '#' starts a comment
//     name step
//     partitions 4                # default 1
//     collective                  # a run waits for, and reads the inputs of, all partitions
//     all_reduce 0                # the words of input 0 become their sums over all partitions
//     permute 0 1                 # input 0 goes to the partition that is 1 further on, around
//     rounds 3                    # the collectives above run in their order, so often; default 1. 0: a program that
//                                 # may be on several workers and has nothing to tell them, so it has no collectives,
//                                 # as one of XLA that works on each element alone
//     cost_us 330                 # device time of one run, default 0
//     slow 1 50000                # on device 1 (SimOptions::first_device), a run takes 50 ms more
//     fails 2 3                   # on device 2, a run fails before collective 3 (from 0 on, counted through all
//                                 # rounds), or at its end if it has fewer
//     temp_bytes 4096             # default 0
//     code_bytes 1000000          # of the compiled executable, beside its text; default 0
//     input 11 128 4              # element type (XLA PrimitiveType), then dimensions per device
//     output 11 128 4
//     output 11 128 4 donates 0   # reuses the memory of input 0, which has the same size
//
// A program with all_reduce or permute communicates by collectives of Gangway's own, one after the other, so that its
// partitions may be on several workers. Its outputs are its inputs after them, so it has an output for each input, of
// the same kind, that donates this input or none. Their words are unsigned integers of 32 bits, whatever the element
// type, so that sums are exact. Only such a program can be slow or fail on one device.
#ifndef GANGWAY_DEVICE_SIM_SIM_PROGRAM_H_
#define GANGWAY_DEVICE_SIM_SIM_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "gangway/device/device.h"

namespace gangway::device {

struct SimCollective {
  enum class Kind { kAllReduce, kPermute };
  Kind kind = Kind::kAllReduce;
  int input = 0;
  int shift = 0;  // of a permute
};

struct SimProgram {
  std::string name = "sim";
  int partitions = 1;
  bool collective = false;
  std::vector<SimCollective> collectives;  // of Gangway's own
  int rounds = 1;
  int slow_device = -1;  // -1: none
  int64_t slow_us = 0;
  int failing_device = -1;  // -1: none
  int fails_before = 0;     // the number of a collective, counted through all rounds
  int64_t cost_us = 0;
  int64_t temp_bytes = 0;
  int64_t code_bytes = 0;
  std::vector<ArraySpec> inputs;
  std::vector<ArraySpec> outputs;
  std::vector<int> donated_input;  // per output: the input whose memory it reuses, or -1

  bool communicates() const { return !collectives.empty() && rounds > 0; }  // by Gangway's own
};

// INVALID_ARGUMENT names the line and what is wrong with it.
absl::StatusOr<SimProgram> ParseSimProgram(std::string_view text);
std::string FormatSimProgram(const SimProgram& program);
// The interface of the program as a serialized HloModuleWithConfigProto, without a body; a collective is an all-reduce.
std::string HloOf(const SimProgram& program);

// Outputs are hashes: output `index` of logical position `position` depends only on the program,
// the position and the digest of the run's inputs. Floating-point elements are finite, so equal
// bits compare equal.
uint64_t DigestBytes(uint64_t seed, std::span<const std::byte> bytes);
// Digest of one run's own inputs.
uint64_t DigestInputs(const SimProgram& program,
                      std::span<const std::span<const std::byte>> inputs);
// Digest of a collective run's inputs, from the digests of all positions, in order.
uint64_t CombineDigests(std::span<const uint64_t> digests);
std::vector<std::byte> SimOutput(const SimProgram& program, int index, int position,
                                 uint64_t digest);

}  // namespace gangway::device

#endif  // GANGWAY_DEVICE_SIM_SIM_PROGRAM_H_
