// One AOTInductor model made of others: it calls compiled regions in the order of a plan, and binds each call's constants.
//
// It has the C interface that PyTorch's loaders look up in a model's library (torch/csrc/inductor/aoti_runtime/interface.h,
// torch 2.11 to 2.14), so that a package of regions loads like any other. The libraries of the regions and the plan lie
// beside it. It uses two functions of PyTorch's C interface and no header of its own.

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

extern "C" {
struct AtenTensorOpaque;
using Tensor = AtenTensorOpaque*;
int32_t aoti_torch_new_tensor_handle(Tensor, Tensor*);
int32_t aoti_torch_delete_tensor_object(Tensor);
}

namespace {

using Status = int32_t;
using Handle = void*;
using RunFunction = Status (*)(Handle, Tensor*, size_t, Tensor*, size_t, void*, void*);
using TensorMap = std::unordered_map<std::string, Tensor>;

constexpr const char* FORMAT = "pt2hub regions 1";
constexpr const char* PLAN = "model.plan";
constexpr uint64_t ALIGNMENT = 64;

thread_local std::string last_error;


// A region's library. It is never closed: code of it may still be on the stack of another thread.
class Library {
 public:
  explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
      throw std::runtime_error(dlerror());
    }
  }

  template <typename Function>
  Function find(const char* name) const {
    void* found = dlsym(handle_, name);
    if (found == nullptr) {
      throw std::runtime_error(std::string("a region lacks ") + name);
    }
    return reinterpret_cast<Function>(found);
  }

  template <typename... Args>
  void call(const char* name, Args... args) const {
    check(find<Status (*)(Args...)>(name)(args...), name);
  }

  void check(Status status, const char* what) const {
    if (status == 0) {
      return;
    }
    std::string text = std::string("a region failed: ") + what;
    auto reason = reinterpret_cast<Status (*)(const char**)>(dlsym(handle_, "AOTInductorGetLastError"));
    const char* found = nullptr;
    if (reason != nullptr && reason(&found) == 0 && found != nullptr && *found != 0) {
      text = found;
    }
    throw std::runtime_error(text);
  }

 private:
  void* handle_;
};

// A tensor that one call or several read.
struct Constant {
  std::string fqn;
  size_t call;
  size_t index;
};

struct Call {
  size_t library;
  std::vector<size_t> inputs;
  std::vector<size_t> outputs;
  std::unordered_map<std::string, std::string> names;  // in the model, by name in the region
  Handle container = nullptr;
  RunFunction run = nullptr;
  RunFunction run_single_threaded = nullptr;
  std::vector<std::pair<std::string, std::string>> constants;  // name in the region's code, name in the model
  uint64_t blob_begin = 0;
  uint64_t blob_size = 0;
};

class PlanReader {
 public:
  explicit PlanReader(const std::string& path) : file_(path) {
    if (!file_ || line() != FORMAT) {
      throw std::runtime_error("the plan of the regions is missing or has another format: " + path);
    }
  }

  std::string line() {
    std::string text;
    if (!std::getline(file_, text)) {
      throw std::runtime_error("the plan of the regions is truncated");
    }
    return text;
  }

  size_t number() { return std::stoull(line()); }

  std::vector<size_t> numbers() {
    std::vector<size_t> found(number());
    for (auto& item : found) {
      item = number();
    }
    return found;
  }

  std::vector<std::string> lines() {
    std::vector<std::string> found(number());
    for (auto& item : found) {
      item = line();
    }
    return found;
  }

 private:
  std::ifstream file_;
};

std::string own_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) {
    throw std::runtime_error("the folder of the regions is unknown");
  }
  const std::string path(info.dli_fname);
  return path.substr(0, path.rfind('/') + 1);
}

// The values of one run; those that are left are freed.
class Values {
 public:
  explicit Values(size_t count) : held_(count, nullptr) {}
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;
  ~Values() {
    for (size_t slot = 0; slot < held_.size(); ++slot) {
      drop(slot);
    }
  }

  void put(size_t slot, Tensor tensor) { held_[slot] = tensor; }

  // Return a handle that the receiver frees; the last reader gets the value itself.
  Tensor take(size_t slot, bool last) {
    Tensor found = held_[slot];
    if (last) {
      held_[slot] = nullptr;
      return found;
    }
    Tensor copy = nullptr;
    if (aoti_torch_new_tensor_handle(found, &copy) != 0) {
      throw std::runtime_error("a tensor could not be passed to a region");
    }
    return copy;
  }

 private:
  void drop(size_t slot) {
    if (held_[slot] != nullptr) {
      aoti_torch_delete_tensor_object(held_[slot]);
      held_[slot] = nullptr;
    }
  }

  std::vector<Tensor> held_;
};

class Composite {
 public:
  Composite(size_t runners, const char* device, const char* cubins) {
    const std::string folder = own_folder();
    PlanReader plan(folder + PLAN);
    in_spec = plan.line();
    out_spec = plan.line();
    input_names = plan.lines();
    output_names = plan.lines();
    outputs_ = plan.numbers();
    slots_ = plan.number();
    for (const auto& name : plan.lines()) {
      libraries_.emplace_back(folder + name);
    }
    calls_.resize(plan.number());
    for (auto& call : calls_) {
      read_call(plan, call);
    }
    for (auto& call : calls_) {
      open(call, runners, device, cubins);
    }
    find_last_readers();
  }

  Composite(const Composite&) = delete;
  Composite& operator=(const Composite&) = delete;
  ~Composite() noexcept(false) {
    for (auto& call : calls_) {
      if (call.container != nullptr) {
        libraries_[call.library].call("AOTInductorModelContainerDelete", call.container);
      }
    }
  }

  void run(Tensor* inputs, Tensor* outputs, void* stream, void* proxies, bool single_threaded) const {
    Values values(slots_);
    for (size_t slot = 0; slot < input_names.size(); ++slot) {
      values.put(slot, inputs[slot]);
    }
    for (size_t number = 0; number < calls_.size(); ++number) {
      run_call(number, values, stream, proxies, single_threaded);
    }
    for (size_t place = 0; place < outputs_.size(); ++place) {
      outputs[place] = values.take(outputs_[place], output_is_last_[place]);
    }
  }

  // Give every call the constants of a map from names in the model.
  void update(const char* function, const TensorMap& given, bool inactive, bool full) const {
    for (const auto& call : calls_) {
      TensorMap own = of_call(call, given);
      libraries_[call.library].call(function, call.container, static_cast<Handle>(&own), inactive, full);
    }
  }

  void update_inactive(const TensorMap& given) const {
    for (const auto& call : calls_) {
      TensorMap own = of_call(call, given);
      libraries_[call.library].call(
          "AOTInductorModelContainerUpdateInactiveConstantBuffer", call.container, static_cast<Handle>(&own));
    }
  }

  void extract(TensorMap& found, bool inactive) const {
    for (const auto& call : calls_) {
      TensorMap own;
      libraries_[call.library].call(
          "AOTInductorModelContainerExtractConstantsMap", call.container, static_cast<Handle>(&own), inactive);
      for (const auto& [name, fqn] : call.constants) {
        auto at = own.find(name);
        if (at != own.end()) {
          found.emplace(fqn, at->second);
        }
      }
    }
  }

  template <typename... Args>
  void forward(const char* function, Args... args) const {
    for (const auto& call : calls_) {
      libraries_[call.library].call(function, call.container, args...);
    }
  }

  template <typename Value>
  void about_constant(const char* function, size_t index, Value* found) const {
    const Constant& constant = constants.at(index);
    const Call& call = calls_[constant.call];
    libraries_[call.library].call(function, call.container, constant.index, found);
  }

  uint64_t blob_size() const { return blob_size_; }

  void load_blob(const uint8_t* blob) const {
    for (const auto& call : calls_) {
      if (call.blob_size != 0) {
        libraries_[call.library].call(
            "AOTInductorModelUpdateConstantsFromBlob", call.container, blob + call.blob_begin);
      }
    }
  }

  std::string in_spec;
  std::string out_spec;
  std::vector<std::string> input_names;
  std::vector<std::string> output_names;
  std::vector<Constant> constants;

 private:
  static void read_call(PlanReader& plan, Call& call) {
    call.library = plan.number();
    call.inputs = plan.numbers();
    call.outputs = plan.numbers();
    const size_t count = plan.number();
    for (size_t row = 0; row < count; ++row) {
      const std::string name = plan.line();
      call.names[name] = plan.line();
    }
  }

  void open(Call& call, size_t runners, const char* device, const char* cubins) {
    const Library& library = libraries_.at(call.library);
    library.call("AOTInductorModelContainerCreateWithDevice", &call.container, runners, device, cubins);
    call.run = library.find<RunFunction>("AOTInductorModelContainerRun");
    call.run_single_threaded = library.find<RunFunction>("AOTInductorModelContainerRunSingleThreaded");
    size_t count = 0;
    library.call("AOTInductorModelContainerGetNumConstants", call.container, &count);
    for (size_t index = 0; index < count; ++index) {
      const char* name = nullptr;
      const char* fqn = nullptr;
      library.call("AOTInductorModelContainerGetConstantName", call.container, index, &name);
      library.call("AOTInductorModelContainerGetConstantOriginalFQN", call.container, index, &fqn);
      const std::string own(fqn != nullptr && *fqn != 0 ? fqn : name);
      const std::string& full = call.names.at(own);
      call.constants.emplace_back(name, full);
      if (known_.emplace(full, constants.size()).second) {
        constants.push_back({full, static_cast<size_t>(&call - calls_.data()), index});
      }
    }
    if (count != 0) {
      library.call("AOTInductorModelContainerGetConstantsBlobSize", call.container, &call.blob_size);
    }
    call.blob_begin = (blob_size_ + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    blob_size_ = call.blob_size != 0 ? call.blob_begin + call.blob_size : blob_size_;
  }

  // Values are freed as soon as nothing reads them any more.
  void find_last_readers() {
    std::vector<bool> read(slots_, false);
    output_is_last_.assign(outputs_.size(), false);
    for (size_t place = outputs_.size(); place-- > 0;) {
      output_is_last_[place] = !read.at(outputs_[place]);
      read[outputs_[place]] = true;
    }
    is_last_.resize(calls_.size());
    for (size_t number = calls_.size(); number-- > 0;) {
      const auto& inputs = calls_[number].inputs;
      is_last_[number].assign(inputs.size(), false);
      for (size_t place = inputs.size(); place-- > 0;) {
        is_last_[number][place] = !read.at(inputs[place]);
        read[inputs[place]] = true;
      }
    }
  }

  void run_call(size_t number, Values& values, void* stream, void* proxies, bool single_threaded) const {
    const Call& call = calls_[number];
    std::vector<Tensor> inputs(call.inputs.size());
    std::vector<Tensor> outputs(call.outputs.size(), nullptr);
    for (size_t place = 0; place < inputs.size(); ++place) {
      inputs[place] = values.take(call.inputs[place], is_last_[number][place]);
    }
    const RunFunction run = single_threaded ? call.run_single_threaded : call.run;
    libraries_[call.library].check(
        run(call.container, inputs.data(), inputs.size(), outputs.data(), outputs.size(), stream, proxies),
        "a call");
    for (size_t place = 0; place < outputs.size(); ++place) {
      values.put(call.outputs[place], outputs[place]);
    }
  }

  static TensorMap of_call(const Call& call, const TensorMap& given) {
    TensorMap own;
    for (const auto& [name, fqn] : call.constants) {
      auto at = given.find(fqn);
      if (at != given.end()) {
        own.emplace(name, at->second);
      }
    }
    return own;
  }

  std::vector<Library> libraries_;
  std::vector<Call> calls_;
  std::vector<size_t> outputs_;
  size_t slots_ = 0;
  uint64_t blob_size_ = 0;
  std::unordered_map<std::string, size_t> known_;
  std::vector<std::vector<bool>> is_last_;
  std::vector<bool> output_is_last_;
};

template <typename Work>
Status guard(Work work) {
  try {
    last_error.clear();
    work();
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
    std::fprintf(stderr, "Error: %s\n", error.what());
    return 1;
  }
}

Composite& of(Handle handle) { return *static_cast<Composite*>(handle); }
const TensorMap& map_of(Handle handle) { return *static_cast<TensorMap*>(handle); }

}  // namespace

#define PT2HUB_API extern "C" __attribute__((__visibility__("default")))

PT2HUB_API Status AOTInductorModelContainerCreateWithDevice(
    Handle* made, size_t runners, const char* device, const char* cubins) {
  return guard([&] { *made = new Composite(runners, device, cubins); });
}

PT2HUB_API Status AOTInductorModelContainerCreate(Handle* made, size_t runners, bool is_cpu, const char* cubins) {
  return AOTInductorModelContainerCreateWithDevice(made, runners, is_cpu ? "cpu" : "cuda", cubins);
}

PT2HUB_API Status AOTInductorModelContainerDelete(Handle handle) {
  return guard([&] { delete &of(handle); });
}

PT2HUB_API Status AOTInductorModelContainerRun(
    Handle handle, Tensor* inputs, size_t, Tensor* outputs, size_t, void* stream, void* proxies) {
  return guard([&] { of(handle).run(inputs, outputs, stream, proxies, false); });
}

PT2HUB_API Status AOTInductorModelContainerRunSingleThreaded(
    Handle handle, Tensor* inputs, size_t, Tensor* outputs, size_t, void* stream, void* proxies) {
  return guard([&] { of(handle).run(inputs, outputs, stream, proxies, true); });
}

PT2HUB_API Status AOTInductorModelContainerGetNumConstants(Handle handle, size_t* found) {
  return guard([&] { *found = of(handle).constants.size(); });
}

PT2HUB_API Status AOTInductorModelContainerGetConstantName(Handle handle, size_t index, const char** found) {
  return guard([&] { *found = of(handle).constants.at(index).fqn.c_str(); });
}

PT2HUB_API Status AOTInductorModelContainerGetConstantOriginalFQN(Handle handle, size_t index, const char** found) {
  return AOTInductorModelContainerGetConstantName(handle, index, found);
}

PT2HUB_API Status AOTInductorModelContainerGetConstantFromFolded(Handle handle, size_t index, bool* found) {
  return guard([&] { of(handle).about_constant("AOTInductorModelContainerGetConstantFromFolded", index, found); });
}

PT2HUB_API Status AOTInductorModelContainerGetConstantType(Handle handle, size_t index, int32_t* found) {
  return guard([&] { of(handle).about_constant("AOTInductorModelContainerGetConstantType", index, found); });
}

PT2HUB_API Status AOTInductorModelContainerGetConstantDtype(Handle handle, size_t index, int32_t* found) {
  return guard([&] { of(handle).about_constant("AOTInductorModelContainerGetConstantDtype", index, found); });
}

PT2HUB_API Status AOTInductorModelContainerGetConstantDataSize(Handle handle, size_t index, size_t* found) {
  return guard([&] { of(handle).about_constant("AOTInductorModelContainerGetConstantDataSize", index, found); });
}

PT2HUB_API Status AOTInductorModelContainerExtractConstantsMap(Handle handle, Handle found, bool inactive) {
  return guard([&] { of(handle).extract(*static_cast<TensorMap*>(found), inactive); });
}

PT2HUB_API Status AOTInductorModelContainerUpdateUserManagedConstantBuffer(
    Handle handle, Handle given, bool inactive, bool full) {
  return guard([&] {
    of(handle).update("AOTInductorModelContainerUpdateUserManagedConstantBuffer", map_of(given), inactive, full);
  });
}

PT2HUB_API Status AOTInductorModelContainerUpdateConstantBuffer(
    Handle handle, Handle given, bool inactive, bool full) {
  return guard(
      [&] { of(handle).update("AOTInductorModelContainerUpdateConstantBuffer", map_of(given), inactive, full); });
}

PT2HUB_API Status AOTInductorModelContainerUpdateConstantBufferFromCpu(
    Handle handle, Handle given, bool inactive, bool full) {
  return guard([&] {
    of(handle).update("AOTInductorModelContainerUpdateConstantBufferFromCpu", map_of(given), inactive, full);
  });
}

PT2HUB_API Status AOTInductorModelContainerUpdateInactiveConstantBuffer(Handle handle, Handle given) {
  return guard([&] { of(handle).update_inactive(map_of(given)); });
}

PT2HUB_API Status AOTInductorModelContainerFreeInactiveConstantBuffer(Handle handle) {
  return guard([&] { of(handle).forward("AOTInductorModelContainerFreeInactiveConstantBuffer"); });
}

PT2HUB_API Status AOTInductorModelContainerRunConstantFolding(
    Handle handle, bool inactive, void* stream, void* proxies) {
  return guard(
      [&] { of(handle).forward("AOTInductorModelContainerRunConstantFolding", inactive, stream, proxies); });
}

PT2HUB_API Status AOTInductorModelContainerSwapConstantBuffer(Handle handle) {
  return guard([&] { of(handle).forward("AOTInductorModelContainerSwapConstantBuffer"); });
}

PT2HUB_API Status AOTInductorModelContainerGetNumInputs(Handle handle, size_t* found) {
  return guard([&] { *found = of(handle).input_names.size(); });
}

PT2HUB_API Status AOTInductorModelContainerGetInputName(Handle handle, size_t index, const char** found) {
  return guard([&] { *found = of(handle).input_names.at(index).c_str(); });
}

PT2HUB_API Status AOTInductorModelContainerGetNumOutputs(Handle handle, size_t* found) {
  return guard([&] { *found = of(handle).output_names.size(); });
}

PT2HUB_API Status AOTInductorModelContainerGetOutputName(Handle handle, size_t index, const char** found) {
  return guard([&] { *found = of(handle).output_names.at(index).c_str(); });
}

PT2HUB_API Status AOTInductorModelContainerGetConstantsBlobSize(Handle handle, uint64_t* found) {
  return guard([&] { *found = of(handle).blob_size(); });
}

PT2HUB_API Status AOTInductorModelUpdateConstantsFromBlob(Handle handle, const uint8_t* blob) {
  return guard([&] { of(handle).load_blob(blob); });
}

PT2HUB_API Status AOTInductorModelContainerGetCallSpec(Handle handle, const char** in_spec, const char** out_spec) {
  return guard([&] {
    *in_spec = of(handle).in_spec.c_str();
    *out_spec = of(handle).out_spec.c_str();
  });
}

PT2HUB_API Status AOTInductorGetLastError(const char** found) {
  *found = last_error.c_str();
  return 0;
}
