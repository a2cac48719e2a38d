// Which exit code an error is.
#include "app/cli/exit_code.h"

#include <system_error>

#include "tests/support/catch.h"

using app::cli::ExitCode;

namespace {

ExitCode code_of(std::errc error) {
  return app::cli::failure_of(std::make_exception_ptr(std::system_error(std::make_error_code(error)))).code;
}

}  // namespace

TEST_CASE("memory, threads and open files that a machine does not have left are no fault of a file") {
  for (const std::errc error : {std::errc::not_enough_memory, std::errc::resource_unavailable_try_again,
                                std::errc::too_many_files_open, std::errc::no_space_on_device})
    CHECK(code_of(error) == ExitCode::device_error);
  for (const std::errc error : {std::errc::no_such_file_or_directory, std::errc::is_a_directory})
    CHECK(code_of(error) == ExitCode::bad_input);
}
