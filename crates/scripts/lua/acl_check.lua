-- acl_check: lists the commands that the user may not run.
--
-- KEYS: 1 a key that the user must be allowed to use
-- ARGV: two for each command: its name, and its words separated by spaces, with KEY for the key
--
-- Returns the names of the commands that the user may not run. Runs none of them. Needs Redis 7.
--
-- Each command must be well formed: Redis 7.0 looks for its keys without counting its arguments, and crashes if there are
-- too few.

local forbidden = {}
for a = 1, #ARGV, 2 do
  local words = {}
  for word in string.gmatch(ARGV[a + 1], '%S+') do
    words[#words + 1] = word == 'KEY' and KEYS[1] or word
  end
  if not redis.acl_check_cmd(unpack(words)) then
    forbidden[#forbidden + 1] = ARGV[a]
  end
end
return forbidden
