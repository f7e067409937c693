// Which jet came from which particle, in C++: runs a file made by `pairton export MODEL --whole -o FILE`.
//
//   reconstruct FILE.onnx < jets.txt
//
// A line of jets.txt is an event: pt eta phi energy of each jet, in GeV and radians, each followed by what else the
// model takes of a jet, such as b_evidence and c_evidence. A line of the output is an event, with all that the file
// gives: the jet in every slot (counted from 0 in the order of the input, -1 for none), the probability of the event,
// and that of every particle. A model that knows missing particles adds the probability of every pattern, that the
// event is complete, and that the answer is right if it is.

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: reconstruct FILE.onnx < jets.txt\n";
    return 2;
  }
  Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "pairton");
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(1);
  Ort::Session session(env, argv[1], options);
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  const std::array<const char*, 2> inputs{"jet", "jet_mask"};
  const auto jet_type = session.GetInputTypeInfo(0);
  const std::int64_t columns = jet_type.GetTensorTypeAndShapeInfo().GetShape().back();  // numbers of each jet
  Ort::AllocatorWithDefaultOptions allocator;
  std::vector<Ort::AllocatedStringPtr> names;
  std::vector<const char*> outputs;  // indices first, then probabilities
  for (std::size_t k = 0; k < session.GetOutputCount(); ++k) {
    names.push_back(session.GetOutputNameAllocated(k, allocator));
    outputs.push_back(names.back().get());
  }

  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream numbers(line);
    std::vector<float> jets;
    for (float value; numbers >> value;) jets.push_back(value);
    const std::int64_t n = static_cast<std::int64_t>(jets.size()) / columns;
    if (n == 0 || n * columns != static_cast<std::int64_t>(jets.size())) {
      std::cerr << "an event has " << jets.size() << " numbers, but needs " << columns << " of each jet\n";
      return 2;
    }
    // A batch of one event: all its jets are there. Several events of different size are padded to the largest, with
    // jet_mask false behind the jets of each.
    const auto jet_mask = std::make_unique<bool[]>(static_cast<std::size_t>(n));
    std::fill_n(jet_mask.get(), n, true);
    const std::array<std::int64_t, 3> jets_shape{1, n, columns};
    const std::array<std::int64_t, 2> mask_shape{1, n};
    std::array<Ort::Value, 2> feeds{
        Ort::Value::CreateTensor<float>(memory, jets.data(), jets.size(), jets_shape.data(), jets_shape.size()),
        Ort::Value::CreateTensor<bool>(memory, jet_mask.get(), static_cast<std::size_t>(n), mask_shape.data(),
                                       mask_shape.size())};
    const auto found = session.Run(Ort::RunOptions{}, inputs.data(), feeds.data(), feeds.size(), outputs.data(),
                                   outputs.size());
    const auto slots = found[0].GetTensorTypeAndShapeInfo().GetElementCount();
    const auto* indices = found[0].GetTensorData<std::int64_t>();
    for (std::size_t slot = 0; slot < slots; ++slot) std::cout << (slot ? " " : "") << indices[slot];
    for (std::size_t k = 1; k < found.size(); ++k) {
      const auto count = found[k].GetTensorTypeAndShapeInfo().GetElementCount();
      const auto* values = found[k].GetTensorData<float>();
      for (std::size_t i = 0; i < count; ++i) std::cout << ' ' << values[i];
    }
    std::cout << '\n';
  }
} catch (const std::exception& error) {
  std::cerr << "reconstruct: " << error.what() << '\n';
  return 1;
}
