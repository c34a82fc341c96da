#include "report/certificate_json.h"

#include <nlohmann/json.hpp>

namespace spiritlevel {

void AddCertificate(const std::optional<Certificate>& certificate, nlohmann::ordered_json* json) {
  const auto add = [&](const char* key, auto value_of) {
    (*json)[key] = certificate ? nlohmann::ordered_json(value_of(*certificate)) : nullptr;
  };
  add("lower_bound_ns", [](const Certificate& c) { return c.lower_bound; });
  add("lower_bound_reason", [](const Certificate& c) { return c.bound.reason; });
  add("gap", [](const Certificate& c) { return c.gap; });
  add("proved_optimal", [](const Certificate& c) { return c.proved_optimal; });
}

}  // namespace spiritlevel
