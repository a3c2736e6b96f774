// VainTries: how many of its next tries a thread leaves out, so that tries which rarely pay cost little: none after one
// that paid, twice as many after each in vain.
//
// Threading: one thread. Failure: none.
#ifndef GANGWAY_BASE_VAIN_TRIES_H_
#define GANGWAY_BASE_VAIN_TRIES_H_

#include <algorithm>

namespace gangway {

class VainTries {
 public:
  // Whether this try is left out.
  bool LeavesOut() {
    if (++left_out_ < 1 << vain_) return true;
    left_out_ = 0;
    return false;
  }
  void Note(bool was_worth_it) { vain_ = was_worth_it ? 0 : std::min(vain_ + 1, kVainMax); }

 private:
  static constexpr int kVainMax = 6;

  int vain_ = 0;      // in a row
  int left_out_ = 0;  // since the last
};

}  // namespace gangway

#endif  // GANGWAY_BASE_VAIN_TRIES_H_
