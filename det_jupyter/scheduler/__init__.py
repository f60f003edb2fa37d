"""Allocation of slots to gangs, and the reasons why gangs wait. Pure.

model     the values: groups, requests, agents, rules, decisions
deciding  the live pool: takes every change, decides which gangs start and which leave
reasons   why a request waits, what would start it, and when that is expected
"""
