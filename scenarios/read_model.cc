#include "scenarios/read_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "models/hf_config.h"

namespace spiritlevel {
namespace {

constexpr int kMaxMicroBatchSize = 1 << 20;
constexpr int kMaxReplicas = 1 << 20;

class ModelReader {
 public:
  ModelReader(const proto::Model& message, const Scenario& shape, const Source& source,
              Judge* judge)
      : message_(message), shape_(shape), source_(source), judge_(*judge) {}

  ModelForm Read() {
    form_.place = judge_.Where(model_);
    ReadFiles();
    ReadShape();
    ReadSplit();
    ReadRecompute();
    ReadReplicas();
    form_.run.norm_grads_in_w = message_.norm_grads_in_w();
    form_.run.stored_attention = message_.stored_attention();
    form_.run.all_cores_busy = !message_.has_all_cores_busy() || message_.all_cores_busy();
    CheckShapeOfModel();
    CheckStages();
    return std::move(form_);
  }

 private:
  // Relative to the folder of the scenario file.
  std::string FileBeside(const Place& place, const std::string& name) const {
    if (name.empty()) judge_.Refuse(place, "names no file", "give its path");
    if (!IsUtf8(name) || HasControlCharacter(name)) {
      judge_.Refuse(place, "is no file name", "write it on one line, without escapes");
    }
    return (std::filesystem::path(source_.name).parent_path() / name).string();
  }

  template <class Parse>
  auto Parsed(const Place& place, const std::string& word, Parse&& parse) const {
    try {
      return parse(Shown(Printable(word)));
    } catch (const InputError& error) {
      judge_.Refuse(place, error.problem(), error.way_out());
    }
  }

  void ReadFiles() {
    const Place config(model_, "config");
    if (!message_.has_config()) {
      judge_.RefuseMissing(config, "config: \"config.json\", a Hugging Face config");
    }
    form_.config_file = FileBeside(config, message_.config());
    try {
      form_.architecture = LoadHfConfig(form_.config_file);
    } catch (const InputError& error) {
      const bool absolute = std::filesystem::path(message_.config()).is_absolute();
      const char* const where = absolute ? "give the path of the model's config.json"
                                         : "its path is relative to the scenario's folder";
      judge_.Refuse(config, error.problem(), error.way_out().empty() ? where : error.way_out());
    }
    if (message_.has_profile()) {
      form_.profile_file = FileBeside({model_, "profile"}, message_.profile());
    }
  }

  void ReadShape() {
    const Place sequence(model_, "sequence_length");
    if (!message_.has_sequence_length()) {
      judge_.RefuseMissing(sequence, "sequence_length: 4096");
    }
    constexpr auto kMost = static_cast<int>(kMaxModelPositions);
    form_.run.sequence_length = judge_.Count(sequence, message_.sequence_length(), kMost,
                                             "give the tokens of a sequence, for example 4096");
    const int64_t positions = form_.architecture.max_positions;
    if (positions > 0 && form_.run.sequence_length > positions &&
        !form_.architecture.learned_positions) {
      judge_.Warn(sequence, fmt::format("{} is more than the {} positions of the model's config",
                                        form_.run.sequence_length, positions));
    }
    if (message_.has_micro_batch_size()) {
      form_.run.micro_batch_size =
          judge_.Count({model_, "micro_batch_size"}, message_.micro_batch_size(),
                       kMaxMicroBatchSize, "give the sequences of a micro-batch, for example 1");
    }
    if (message_.has_dtype()) ReadDType();
    form_.run.ranks = shape_.ranks;
    form_.run.micro_batches = shape_.micro_batches;
  }

  void ReadDType() {
    const Place place(model_, "dtype");
    form_.dtype_place = judge_.Where(place);
    form_.dtype = Parsed(place, message_.dtype(), ParseDType);
    form_.run.dtype = *form_.dtype;
  }

  void ReadSplit() {
    const Place split(model_, "split");
    if (message_.layers_per_stage_size() > 0) {
      if (message_.has_split()) {
        judge_.Refuse(split, "stands beside layers_per_stage", "give one of the two");
      }
      if (message_.layers_per_stage_size() > kMaxStages) {
        judge_.Refuse({model_, "layers_per_stage"},
                      fmt::format("has {} entries, more than {} stages",
                                  message_.layers_per_stage_size(), kMaxStages),
                      "give one for each stage");
      }
      form_.split = Split::kGiven;
      form_.run.layers_per_stage = {message_.layers_per_stage().begin(),
                                    message_.layers_per_stage().end()};
      return;
    }
    if (!message_.has_split()) return;
    for (const Split known : {Split::kEven, Split::kBalanced}) {
      form_.split = known;
      if (message_.split() == Name(known)) return;
    }
    judge_.Refuse(
        split, fmt::format("there is no split \"{}\"", Shown(Printable(message_.split()))),
        "there are even and balanced; or give layers_per_stage, for example [9, 9, 8, 6]");
  }

  void ReadRecompute() {
    const Place all(model_, "recompute");
    if (message_.has_recompute()) {
      if (message_.recompute_by_stage_size() > 0) {
        judge_.Refuse(all, "stands beside recompute_by_stage", "give one of the two");
      }
      form_.run.recompute = {Parsed(all, message_.recompute(), ParseRecompute)};
    }
    form_.recompute_by_stage = message_.recompute_by_stage_size() > 0;
    if (form_.recompute_by_stage) CheckRecomputedStages();
    for (int i = 0; i < message_.recompute_by_stage_size(); ++i) {
      form_.run.recompute.push_back(Parsed({model_, "recompute_by_stage", i},
                                           message_.recompute_by_stage(i), ParseRecompute));
    }
  }

  void CheckRecomputedStages() const {
    const int entries = message_.recompute_by_stage_size();
    const int layers = message_.layers_per_stage_size();
    const Place place(model_, "recompute_by_stage");
    if (entries % shape_.ranks != 0) {
      judge_.Refuse(place, fmt::format("{} entries do not fit {} ranks", entries, shape_.ranks),
                    "give an entry for each stage, the same number of stages on every rank");
    }
    if (layers > 0 && layers != entries) {
      judge_.Refuse(place,
                    fmt::format("has {} entries, and layers_per_stage has {}", entries, layers),
                    "give one for each stage in both");
    }
    if (entries > kMaxStages) {
      judge_.Refuse(place, fmt::format("has {} entries, more than {} stages", entries, kMaxStages),
                    "give one for each stage");
    }
  }

  void ReadReplicas() {
    if (message_.has_data_parallel()) {
      form_.run.data_parallel =
          judge_.Count({model_, "data_parallel"}, message_.data_parallel(), kMaxReplicas,
                       "give the replicas of the pipeline, 1 for a single one");
    }
    if (!message_.has_bucket_bytes()) return;
    const Place place(model_, "bucket_bytes");
    form_.run.bucket_bytes = judge_.Size(place, message_.bucket_bytes());
    if (form_.run.bucket_bytes == 0) {
      judge_.Refuse(place, "0 is zero: nothing goes into no bucket",
                    fmt::format("leave it out for {}", kDefaultBucketBytes));
    }
  }

  // What the model itself allows; the complaint says of which of the two numbers.
  void CheckShapeOfModel() const {
    ModelRun run = form_.run;
    if (!form_.dtype) run.dtype = DType::kFloat32;  // the largest
    try {
      CheckShape(form_.architecture, run.shape());
    } catch (const InputError& error) {
      judge_.Refuse({model_, "sequence_length"}, error.problem(), error.way_out());
    }
  }

  // One stage a rank is what every placement divides further, so that where this cannot be, nothing
  // can.
  void CheckStages() const {
    const int64_t layers = form_.architecture.layers;
    try {
      switch (form_.split) {
        case Split::kEven:
          EvenStages(layers, shape_.ranks);
          return;
        case Split::kBalanced:
          CheckStageCount(layers, shape_.ranks);
          return;
        case Split::kGiven:
          StagesOf(form_.architecture, form_.run);
          return;
      }
    } catch (const InputError& error) {
      const bool even = form_.split == Split::kEven && layers >= shape_.ranks;
      judge_.Refuse({model_, form_.split == Split::kGiven ? "layers_per_stage" : "split"},
                    error.problem(),
                    even ? error.way_out() + ", or split: \"balanced\"" : error.way_out());
    }
  }

  const proto::Model& message_;
  const Scenario& shape_;
  const Source& source_;
  Judge& judge_;
  const Place top_{};
  const Place model_{top_, "model"};
  ModelForm form_;
};

}  // namespace

ModelForm ReadModel(const proto::Model& message, const Scenario& shape, const Source& source,
                    Judge* judge) {
  return ModelReader(message, shape, source, judge).Read();
}

}  // namespace spiritlevel
