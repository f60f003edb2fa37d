/** The state of slots: their occupants and utilization; independent of the DOM. */
import type {
  IAgentBar,
  IAgentUsage,
  IClusterState,
  ISlot,
  ISlotUsage,
  IUsage
} from '../../model/state.js';

const UNKNOWN: ISlotUsage = { utilization: null, used: null, total: null, missing: '' };
/** More slots are shown as tiles instead of rows. */
const MOST_ROWS = 16;

/** The newest samples; none while they are not followed. */
export class Usage {
  document: IUsage | null = null;

  of(agentId: string, slotId: number): ISlotUsage {
    return this._agent(agentId)?.slots[slotId] ?? UNKNOWN;
  }

  /** CPU utilization of an agent's computer, in percent of all cores. */
  cpu(agentId: string): number | null {
    return this._agent(agentId)?.cpu ?? null;
  }

  private _agent(id: string): IAgentUsage | undefined {
    const agents = this.document?.agents ?? {};
    return Object.hasOwn(agents, id) ? agents[id] : undefined; // an agent may be called `constructor`
  }
}

export function areTiles(agents: readonly IAgentBar[]): boolean {
  return agents.reduce((sum, { slots }) => sum + slots.length, 0) > MOST_ROWS;
}

/** The slots of an experiment, or of another occupant. */
export interface IGroup {
  who: string;
  experimentId: number | null;
  slots: { agentId: string; slot: ISlot }[];
}

/** The occupants of slots, those with the most slots first; free slots are in no group. */
export function groupsOf({ agents }: IClusterState): IGroup[] {
  const groups = new Map<string, IGroup>();
  for (const { id: agentId, slots } of agents) {
    for (const slot of slots) {
      const { experiment_id: experimentId, who, state } = slot;
      if (state === 'free' || state === 'disabled') {
        continue;
      }
      const key = experimentId === null ? `who ${who}` : String(experimentId);
      const group = groups.get(key) ?? { who, experimentId, slots: [] };
      group.slots.push({ agentId, slot });
      groups.set(key, group);
    }
  }
  return [...groups.values()].sort((a, b) => b.slots.length - a.slots.length);
}

/** The mean utilization of slots with a value, and the sum of memory. */
export function summed(group: IGroup, usage: Usage): ISlotUsage {
  const samples = group.slots.map(({ agentId, slot }) => usage.of(agentId, slot.id));
  const busy = samples.flatMap(({ utilization }) => (utilization === null ? [] : [utilization]));
  const sum = (values: (number | null)[]): number | null => {
    const known = values.flatMap(value => (value === null ? [] : [value]));
    return known.length === 0 ? null : known.reduce((a, b) => a + b, 0);
  };
  return {
    utilization: busy.length === 0 ? null : busy.reduce((a, b) => a + b, 0) / busy.length,
    used: sum(samples.map(({ used }) => used)),
    total: sum(samples.map(({ total }) => total)),
    missing: samples.find(({ missing }) => missing !== '')?.missing ?? ''
  };
}
