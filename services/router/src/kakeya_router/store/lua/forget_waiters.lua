-- Takes waiters whose lease has lapsed out of the line, as far as they stand at its front.
-- KEYS    queue, waiters
-- ARGV    nothing
-- returns how many
local now, num_forgotten = now_ms(), 0
local member = member_after(KEYS[1], '-')
while member do
  local tenant, _, id = parse_member(member)
  if tonumber(redis.call('HGET', KEYS[2], id .. '|lease_until_ms')) <= now then
    leave_line(KEYS[1], KEYS[2], id)
    num_forgotten = num_forgotten + 1
    member = member_after(KEYS[1], '(' .. member)
  else
    member = member_after(KEYS[1], '(' .. tenant .. '}')
  end
end
if num_forgotten > 0 then
  announce_room(KEYS[1])
end
return num_forgotten
