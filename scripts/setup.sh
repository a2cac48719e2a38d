# Sourced by ./run and ./test, which set `root` to the repository: installs what is missing, fetches the sources of the
# GUI libraries and the pretrained model, configures and builds. Everything it says goes to stderr.
# A machine that is set up is recognised by a stamp, so that a second start goes straight to ninja.

{ true <&0; } 2> /dev/null || exec < /dev/null  # started with stdin closed

readonly no_suitable_machine=5  # the program's own exit code for "no suitable device"
build_dir="$root/build/release"
stamp="$root/build/setup.stamp"
third_party="${RIDGEPOINT_THIRD_PARTY:-$root/third_party}"

say() { printf 'ridgepoint: %s\n' "$*" >&2; }
die() { say "$2"; exit "$1"; }

# What a stamp holds: a change in any of it means that set-up has something to do.
setup_fingerprint() {
  { cat "$root"/requirements/*.txt "$root/CMakePresets.json" /etc/os-release; printf '%s' "$root $third_party"; } | sha256sum
}

listed_packages() { sed 's/#.*//' "$root/requirements/$1.txt" | tr -s ' \n' '\n' | sed '/^$/d'; }

missing_packages() {
  local installed
  case $1 in
    apt) installed=$(dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p') ;;
    dnf) installed=$(rpm --query --all --queryformat '%{NAME}\n') ;;
  esac
  listed_packages "$1" | grep --line-regexp --fixed-strings --invert-match --file=<(printf '%s\n' "$installed") || true
}

install_packages() {
  local manager install log="$root/build/setup.log"
  if command -v apt-get > /dev/null; then
    manager=apt install='apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends'
  elif command -v dnf > /dev/null; then
    manager=dnf install='dnf install --assumeyes --setopt=install_weak_deps=False'
  else
    say "this system has neither apt nor dnf: install the equivalents of requirements/apt.txt by hand if the build misses any"
    return
  fi
  local -a packages
  mapfile -t packages < <(missing_packages "$manager")
  [ ${#packages[@]} -gt 0 ] || return 0

  install="$install ${packages[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    install="sudo sh -c '$install'"
    say "these packages are missing: ${packages[*]}; installing them takes root, by this command:"
    printf '\n    %s\n\n' "$install" >&2
    [ -t 0 ] || die $no_suitable_machine "run it, then start again (nobody is here to confirm it)"
    local answer
    read -r -p 'ridgepoint: run it now? [y/N] ' answer || answer=no
    [[ $answer == [yY]* ]] || die $no_suitable_machine "nothing was installed"
    # Left on the terminal: sudo asks for its password there.
    sh -c "$install" >&2 || die $no_suitable_machine "the packages could not be installed"
  else
    say "installing the packages that are missing: ${packages[*]}"
    sh -c "$install" > "$log" 2>&1 < /dev/null ||
      { tail -n 20 "$log" >&2; die $no_suitable_machine "the packages could not be installed; the whole log is in $log"; }
  fi
}

fetch_gui_libraries() (  # a subshell, whose end removes what was half done
  bundle=imgui-bundle-1.92.900
  [ ! -e "$third_party/$bundle" ] || exit 0
  say "fetching the sources of the GUI libraries (49 MB)"
  source "$root/scripts/fetch.sh"
  take_turn "$third_party"
  [ ! -e "$third_party/$bundle" ] || exit 0  # another has fetched them meanwhile
  scratch=$(mktemp -d "$third_party/ridgepoint-fetch.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  fetch_pinned "$root/requirements/gui.txt" "$scratch" "the GUI libraries" --no-binary=imgui-bundle ||
    exit $no_suitable_machine
  wanted=()
  for library in glfw/glfw imgui/imgui imgui_test_engine/imgui_test_engine implot/implot \
    portable_file_dialogs/portable_file_dialogs; do
    wanted+=("${bundle/imgui-/imgui_}/external/$library")
  done
  mkdir "$scratch/unpacked"
  tar --extract --file "$scratch"/*.tar.gz --directory "$scratch/unpacked" --strip-components=1 "${wanted[@]}"
  mv "$scratch/unpacked" "$third_party/$bundle"
)

# CUDA's compiler: the one on the PATH, else what scripts/fetch_cuda has fetched.
cuda_compiler() { command -v nvcc || { [ -x "$third_party/cuda-13.0/bin/nvcc" ] && echo "$third_party/cuda-13.0/bin/nvcc"; }; }

# A GPU without CUDA's compiler is worth 724 MB to some, not to all: they are asked, and without a terminal told.
offer_cuda() {
  nvidia-smi --list-gpus 2> /dev/null | grep -q . || return 0
  [ -z "$(cuda_compiler)" ] || return 0
  say "there is an NVIDIA GPU, but not CUDA's compiler (nvcc): real runs will be on the CPU"
  local answer=no
  [ ! -t 0 ] || read -r -p 'ridgepoint: fetch the compiler and cuBLASLt from PyPI (724 MB)? [y/N] ' answer || answer=no
  if [[ $answer == [yY]* ]]; then
    "$root/scripts/fetch_cuda" || say "it could not be fetched; going on without"
  else
    say "scripts/fetch_cuda fetches it later"
  fi
}

# Ninja's progress, on one line of a terminal; elsewhere only that something is built, and what failed.
show_progress() {
  local line progressing=false
  while IFS= read -r line; do
    case $line in
      'ninja: no work to do.' | 'ninja: Entering directory'*) continue ;;
      '['*'] Re-checking globbed'* | '['*'] Re-running CMake'* | '-- '*) continue ;;
    esac
    if [[ $line =~ ^\[[0-9]+/([0-9]+)\]\  ]]; then
      if [ -t 2 ]; then
        printf '\r\033[K%.*s' "${COLUMNS:-80}" "$line" >&2
      elif ! $progressing; then
        say "building, ${BASH_REMATCH[1]} steps"
      fi
      progressing=true
    else
      if $progressing && [ -t 2 ]; then printf '\n' >&2; fi
      printf '%s\n' "$line" >&2
    fi
  done
  if $progressing && [ -t 2 ]; then printf '\r\033[K' >&2; fi
}

configure() {
  local log="$root/build/configure.log"
  # Fresh: the checkout may have moved, and packages that were missing may be there now.
  local compiler
  compiler=${CUDACXX:-$(cuda_compiler || true)}
  (cd "$root" && CUDACXX="$compiler" cmake --fresh --preset "${preset:-release}" -DRIDGEPOINT_THIRD_PARTY="$third_party") > "$log" 2>&1 < /dev/null ||
    { tail -n 20 "$log" >&2; die 1 "CMake could not configure the build; its whole output is in $log"; }
}

set_up() {
  local fingerprint
  fingerprint=$(setup_fingerprint)
  [ ! -f "$stamp" ] || [ ! -d "$third_party" ] || [ "$(< "$stamp")" != "$fingerprint" ] || return 0
  install_packages
  fetch_gui_libraries
  "$root/scripts/fetch_model" || say "going on without the pretrained model; scripts/fetch_model fetches it later"
  offer_cuda
  rm -f "$build_dir/build.ninja"
  printf '%s\n' "$fingerprint" > "$stamp"
}

build() {
  [ -f "$build_dir/build.ninja" ] || configure
  ninja -C "$build_dir" "$@" 2>&1 < /dev/null | show_progress || die 1 "the build failed"
}

# set_up_and_build [TARGET...]: ready to run; no TARGET is everything.
set_up_and_build() {
  mkdir -p "$root/build"
  # One at a time in one checkout; the lock is nobody's but this shell's, so that it ends with it.
  exec 9> "$root/build/lock"
  flock --nonblock 9 || { say "waiting for another ./run or ./test of this checkout"; flock 9; }
  set_up 9>&-
  build "$@" 9>&-
  exec 9>&-
}
