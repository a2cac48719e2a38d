#include "app/cli/exit_code.h"

#include <cerrno>
#include <new>
#include <system_error>

#include "app/gui/desktop.h"
#include "runtime/error.h"
#include "sim/plan/legality.h"
#include "sim/scenario/preset.h"

namespace app::cli {

namespace {

std::string joined(const std::vector<sim::Problem>& problems) {
  std::string text =
      problems.size() == 1 ? "this scenario cannot be:" : "this scenario cannot be, for these reasons:";
  for (const sim::Problem& problem : problems) text += "\n  " + problem.field + ": " + problem.message;
  return text;
}

}  // namespace

ConstraintError::ConstraintError(const std::vector<sim::Problem>& problems)
    : std::runtime_error(joined(problems)) {}

Failure failure_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const UsageError& e) {
    return {ExitCode::usage, e.what()};
  } catch (const ConstraintError& e) {
    return {ExitCode::constraint, e.what()};
  } catch (const runtime::DoesNotFit& e) {
    return {ExitCode::constraint, e.what()};
  } catch (const runtime::InputError& e) {
    return {ExitCode::bad_input, e.what()};
  } catch (const sim::PresetError& e) {
    return {ExitCode::bad_input, e.what()};
  } catch (const runtime::NoDevice& e) {
    return {ExitCode::no_device, e.what()};
  } catch (const NoDisplay& e) {
    return {ExitCode::no_device, e.what()};
  } catch (const runtime::DeviceError& e) {
    return {ExitCode::device_error, e.what()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::device_error,
            "the machine has no memory left for this; a smaller model, batch or sequence needs less"};
  } catch (const std::system_error& e) {  // std::filesystem::filesystem_error among them
    // These errors stand in the way of every file, not only of this one.
    const bool of_device =
        e.code() == std::errc::not_enough_memory ||
        e.code() == std::errc::resource_unavailable_try_again ||  // threads, processes
        e.code() == std::errc::too_many_files_open || e.code() == std::errc::too_many_files_open_in_system ||
        e.code() == std::errc::no_space_on_device || e.code() == std::errc::io_error ||
        e.code() == std::errc::file_too_large || e.code() == std::errc::read_only_file_system ||
        e.code() == std::errc::bad_file_descriptor;
    return {of_device ? ExitCode::device_error : ExitCode::bad_input, e.what()};
  } catch (const std::exception& e) {
    return {ExitCode::internal, std::string("internal error: ") + e.what()};
  }
}

}  // namespace app::cli
