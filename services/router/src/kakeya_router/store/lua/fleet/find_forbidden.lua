-- Which of some commands the router's user may not run on a key of the router's. A Redis before version 7 does not say.
-- key any
-- arg commands...
-- returns their names
local found = {}
for _, command in ipairs(redis.acl_check_cmd and arg.commands or {}) do
  if not redis.acl_check_cmd(command, key.any) then
    found[#found + 1] = command
  end
end
return found
