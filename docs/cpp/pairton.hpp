// Which object came from which particle: runs a file made by `pairton export MODEL --whole -o FILE` on one event.
//
//   pairton::Model model("reconstruct.onnx");
//   const pairton::Answer answer = model({{pt, eta, phi, energy, b_evidence, c_evidence}});  // the jets
//
// Each kind of object that the model takes (jets, then leptons, missing energy) is a list of columns: pt, eta, phi,
// energy in GeV and radians, then its other inputs, with objects of highest pT first. Several threads may call one
// model, and copies share it.

#pragma once

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace pairton {

struct Answer {
  std::vector<int> slots;  // the object in each slot, counted from 0 among those of its kind; -1 for none
  float event = NAN;       // probability that the whole answer is right
  std::vector<float> particles;  // of every particle
  std::vector<float> more;       // if the model knows missing particles: of every pattern, that the event is
                                 // complete, and that the answer is right if it is
};

using Columns = std::vector<std::vector<float>>;

class Model {
 public:
  explicit Model(const std::string& path)
      : env_(std::make_shared<Ort::Env>(ORT_LOGGING_LEVEL_ERROR, "pairton")) {
    Ort::SessionOptions options;
    options.SetIntraOpNumThreads(1);  // callers have threads of their own
    session_ = std::make_shared<Ort::Session>(*env_, path.c_str(), options);
    Ort::AllocatorWithDefaultOptions allocator;
    for (std::size_t k = 0; k < session_->GetInputCount(); ++k) {
      inputs_.push_back(session_->GetInputNameAllocated(k, allocator).get());
      const auto type = session_->GetInputTypeInfo(k);
      widths_.push_back(type.GetTensorTypeAndShapeInfo().GetShape().back());  // of a mask: its number of objects
    }
    for (std::size_t k = 0; k < session_->GetOutputCount(); ++k)
      outputs_.push_back(session_->GetOutputNameAllocated(k, allocator).get());
  }

  // How many columns the objects of a kind need, by its place in the list of kinds.
  std::size_t columns(std::size_t kind) const { return static_cast<std::size_t>(widths_.at(2 * kind)); }

  Answer operator()(const std::vector<Columns>& kinds) const {
    if (2 * kinds.size() != inputs_.size())
      throw std::invalid_argument("the model takes " + std::to_string(inputs_.size() / 2) + " kinds of objects, not " +
                                  std::to_string(kinds.size()));
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    std::vector<std::vector<float>> values(kinds.size());
    std::vector<std::unique_ptr<bool[]>> masks(kinds.size());
    std::vector<Ort::Value> feeds;
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      if (kinds[k].size() != columns(k))
        throw std::invalid_argument(inputs_[2 * k] + " has " + std::to_string(kinds[k].size()) +
                                    " columns, but the model takes " + std::to_string(columns(k)));
      const std::size_t n = kinds[k].front().size(), rows = std::max<std::size_t>(n, 1);  // none: one that is masked
      values[k].assign(rows * kinds[k].size(), 1.0F);
      for (std::size_t c = 0; c < kinds[k].size(); ++c) {
        if (kinds[k][c].size() != n) throw std::invalid_argument(inputs_[2 * k] + " has columns of different length");
        for (std::size_t i = 0; i < n; ++i) values[k][i * kinds[k].size() + c] = kinds[k][c][i];
      }
      masks[k] = std::make_unique<bool[]>(rows);
      std::fill_n(masks[k].get(), rows, n > 0);
      const std::int64_t shape[] = {1, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(kinds[k].size())};
      feeds.push_back(Ort::Value::CreateTensor<float>(memory, values[k].data(), values[k].size(), shape, 3));
      feeds.push_back(Ort::Value::CreateTensor<bool>(memory, masks[k].get(), rows, shape, 2));
    }
    const auto inputs = pointers(inputs_), outputs = pointers(outputs_);
    const auto found = session_->Run(Ort::RunOptions{}, inputs.data(), feeds.data(), feeds.size(), outputs.data(),
                                     outputs.size());
    Answer answer;
    const auto* slots = found[0].GetTensorData<std::int64_t>();
    answer.slots.assign(slots, slots + found[0].GetTensorTypeAndShapeInfo().GetElementCount());
    answer.event = *found[1].GetTensorData<float>();
    for (std::size_t k = 2; k < found.size(); ++k) {
      const auto* numbers = found[k].GetTensorData<float>();
      auto& target = k == 2 ? answer.particles : answer.more;
      target.insert(target.end(), numbers, numbers + found[k].GetTensorTypeAndShapeInfo().GetElementCount());
    }
    return answer;
  }

 private:
  static std::vector<const char*> pointers(const std::vector<std::string>& names) {
    std::vector<const char*> found;
    for (const auto& name : names) found.push_back(name.c_str());
    return found;
  }

  std::shared_ptr<Ort::Env> env_;
  std::shared_ptr<Ort::Session> session_;
  std::vector<std::string> inputs_, outputs_;  // of inputs: a kind, its mask, the next kind
  std::vector<std::int64_t> widths_;
};

}  // namespace pairton
