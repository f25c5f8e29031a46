-- limit_back: undoes charges of requests, such as those of concurrency limits when the requests have ended.
--
-- KEYS, ARGV: see limit_state.lua. On Redis Cluster, all keys must be in one slot.
-- Numbers: for each charge
--   key      index of the key
--   quota    index of the quota
--   cost     units to return
--   mark     the mark in the reply that allowed the request
--
-- Returns the number of charges that still counted, at least in part, and were undone. Other charges change nothing.
-- Not idempotent: the script does not identify charges.

local taken_back = 0
for place in next_number do
  local entry, quota, cost, mark = entries[place], quotas[next_number()], next_number(), next_number()
  local state = state_of(entry, quota)
  if quota.algorithm.take_back(state, quota, min(cost, quota.burst), mark) then
    entry.is_changed = true
    taken_back = taken_back + 1
  end
end
write()
return taken_back
