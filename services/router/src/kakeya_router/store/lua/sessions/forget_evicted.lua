-- Takes sessions whose records Redis has evicted off the list of the pool.
-- key expiry, snapshot_bytes
-- arg session_ids...
-- returns how many were on it
return leave_pool(unpack(arg.session_ids))
