"""Torture of the whole stack: applications that use nothing but the public API, under random faults, and a judge.

python -m antiphon.testing.torture --seeds 1000 --from 0 --minutes 10
python -m antiphon.testing.torture --replay 17
python -m antiphon.testing.torture --replay failing.json --out out/torture
"""
