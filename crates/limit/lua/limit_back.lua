-- limit_back: takes back what requests were charged, as those in flight are when they have ended.
--
-- KEYS, ARGV: see limit_state.lua. On Redis Cluster all keys must be of one slot.
-- Numbers: for each charge
--   key      its place
--   quota    its place
--   cost     the units to take back
--   mark     the one of the reply that let them pass
--
-- Returns one integer: of how many charges something still counted, and was taken back. The others change nothing.

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
