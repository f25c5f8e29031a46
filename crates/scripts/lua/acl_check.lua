-- acl_check: which commands the user may not run.
--
-- KEYS: 1 a key that the user must be allowed to use
-- ARGV: commands, with `|` before a subcommand
--
-- Runs none of them. Returns those that the user may not run. Needs Redis 7.

local forbidden = {}
for _, command in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(command, '[^|]+') do
    words[#words + 1] = word
  end
  words[#words + 1] = KEYS[1]
  if not redis.acl_check_cmd(unpack(words)) then
    forbidden[#forbidden + 1] = command
  end
end
return forbidden
