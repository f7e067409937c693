// The fold of an event, as `pairton train --folds` divides events: a hash of the event number (splitmix64).
// Run the network of this fold, such as reconstruct_fold0.onnx for fold 0: it was not trained on the event.

#pragma once

#include <cstdint>

inline int fold_of(std::uint64_t event_number, int folds) {
  std::uint64_t x = 0x9E3779B97F4A7C15u + 0x2545F4914F6CDD1Du;
  x += event_number + 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x ^= x >> 31;
  return static_cast<int>(((x >> 11) * static_cast<std::uint64_t>(folds)) >> 53);
}
