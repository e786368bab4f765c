-- Renews the leases of a router's waiters.
-- KEYS    waiters, then the request of each waiter (one that is never set for those without a request id)
-- ARGV    lease_ms, then the waiter ids in the same order
-- returns {displaced, answered}: ids of those that are not in the line any more, because their lease lapsed or
--         others made them give way, and of those whose request was answered with somebody else's session
local displaced, answered = {}, {}
local lease_until = now_ms() + ARGV[1]
for i = 2, #ARGV do
  if redis.call('HEXISTS', KEYS[1], ARGV[i] .. '|member') == 0 then
    displaced[#displaced + 1] = ARGV[i]
  else
    redis.call('HSET', KEYS[1], ARGV[i] .. '|lease_until_ms', lease_until)
    if redis.call('EXISTS', KEYS[i]) == 1 then
      answered[#answered + 1] = ARGV[i]
    end
  end
end
return {displaced, answered}
