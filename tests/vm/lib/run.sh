# Runs one scenario with the helper functions: bash run.sh SCENARIO.sh
LIB=$(dirname "$0")
# shellcheck source=scenario.sh
. "$LIB/scenario.sh"
begin_scenario
# shellcheck source=/dev/null
. "$1"
end_scenario
