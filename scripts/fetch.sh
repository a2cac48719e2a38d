# Sourced by what fetches files: packages pinned by their hashes, into a folder of scratch whose end is a rename, one
# fetcher at a time. pip's own settings hold: HTTPS_PROXY for a proxy, PIP_INDEX_URL for a mirror, and PIP_NO_INDEX=1 with
# PIP_FIND_LINKS=FOLDER for a folder of files where there is no network.

# take_turn FOLDER: waits until no other fetches into FOLDER; what one that was killed has left there is removed. The
# lock is this process's, and ends with it.
take_turn() {
  mkdir -p "$1"
  exec 8> "$1/ridgepoint-fetch.lock"
  flock --nonblock 8 || { echo "ridgepoint: waiting for another that fetches into $1" >&2; flock 8; }
  rm -rf "$1"/ridgepoint-fetch.??????
}

# fetch_pinned FILE FOLDER WHAT [PIP ARGUMENTS]: the packages of FILE into FOLDER, or a sentence and 1.
fetch_pinned() {
  local pins="$1" folder="$2" what="$3" log
  shift 3
  log=$(python3 -m pip -qq --disable-pip-version-check download --no-deps --require-hashes \
    --requirement "$pins" --dest "$folder" "$@" 2>&1 < /dev/null 8>&-) && return 0
  case $log in
    *'DO NOT MATCH THE HASHES'*)
      echo "ridgepoint: what came for $what is not what ${pins##*/} names by its hash: cut off, or changed by a mirror or a proxy; nothing of it is kept" >&2 ;;
    *)
      printf '%s\n' "$log" | tail -n 3 >&2
      echo "ridgepoint: $what could not be fetched; is there a network? PIP_INDEX_URL names a mirror, HTTPS_PROXY a proxy, PIP_NO_INDEX=1 with PIP_FIND_LINKS a folder of files" >&2 ;;
  esac
  return 1
}
