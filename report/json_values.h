// What every JSON of ours is written with.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

namespace spiritlevel {

using Json = nlohmann::ordered_json;  // keys in the order in which they are documented

template <class T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace spiritlevel
