// Which jet came from which particle, in C++: runs a file made by `pairton export MODEL --whole -o FILE`.
//
//   reconstruct FILE.onnx < jets.txt
//
// A line of jets.txt is an event: pt eta phi energy of each jet, in GeV and radians, each followed by what else the
// model takes of a jet, such as b_evidence and c_evidence. A line of the output is an event, with all that the file
// gives: the jet in every slot (counted from 0 in the order of the input, -1 for none), the probability of the event,
// and that of every particle. A model that knows missing particles adds the probability of every pattern, that the
// event is complete, and that the answer is right if it is.

#include "pairton.hpp"

#include <iostream>
#include <sstream>

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: reconstruct FILE.onnx < jets.txt\n";
    return 2;
  }
  const pairton::Model model(argv[1]);
  const std::size_t columns = model.columns(0);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream text(line);
    pairton::Columns jets(columns);
    std::size_t count = 0;
    for (float value; text >> value;) jets[count++ % columns].push_back(value);
    if (count % columns != 0) {
      std::cerr << "an event has " << count << " numbers, but needs " << columns << " of each jet\n";
      return 2;
    }
    const pairton::Answer answer = model({jets});
    for (const int slot : answer.slots) std::cout << slot << ' ';
    std::cout << answer.event;
    for (const auto* each : {&answer.particles, &answer.more})
      for (const float value : *each) std::cout << ' ' << value;
    std::cout << '\n';
  }
} catch (const std::exception& error) {
  std::cerr << "reconstruct: " << error.what() << '\n';
  return 1;
}
