-- Renews the leases of a router's waiters.
-- key waiters, evicted
-- key requests...: of each waiter; one that is never set for those without a request id
-- arg lease_ms
-- arg waiter_ids...: in the same order
-- returns {displaced, answered, evicted}: ids of those that are not in the queue any more, of those whose request was
--     answered with another caller's session, and of those that made way for others in a full queue
local displaced, answered, evicted = {}, {}, {}
local lease_until = now_ms() + arg.lease_ms
for i, waiter_id in ipairs(arg.waiter_ids) do
  if redis.call('ZREM', key.evicted, waiter_id) == 1 then
    evicted[#evicted + 1] = waiter_id
  elseif redis.call('HEXISTS', key.waiters, waiter_id .. '|member') == 0 then
    displaced[#displaced + 1] = waiter_id
  else
    redis.call('HSET', key.waiters, waiter_id .. '|lease_until_ms', lease_until)
    if redis.call('EXISTS', key.requests[i]) == 1 then
      answered[#answered + 1] = waiter_id
    end
  end
end
return {displaced, answered, evicted}
