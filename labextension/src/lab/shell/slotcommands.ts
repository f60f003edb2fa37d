/** The commands that disable and enable slots. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { InputDialog } from '@jupyterlab/apputils';

import type { IAgentBar, ISlot } from '../../model/state.js';
import { Commands, SLOT_ATTRIBUTE, type IDetJupyter } from '../tokens.js';
import { ask, mayChange, type Args } from './requests.js';
import { switchSlotIcon } from './shellicons.js';

interface IGiven {
  agent_id?: string;
  slot_id?: number;
}

interface IFound {
  agent: IAgentBar;
  slot: ISlot;
}

export function addSwitchSlot(app: JupyterFrontEnd, det: IDetJupyter): void {
  const { trans } = det;
  const label = ({ enabled, drain }: Args): string =>
    enabled === true
      ? trans.__('Enable Slot')
      : drain === true
        ? trans.__('Disable Slot When Its Trial Ends')
        : trans.__('Disable Slot');
  app.commands.addCommand(Commands.switchSlot, {
    label: args => (isChoosing(args) ? `${label(args)}…` : label(args)),
    caption: ({ enabled, drain }) =>
      enabled === true
        ? trans.__('Give the slot to trials again')
        : drain === true
          ? trans.__('The trial on it trains to its end; then no other gets the slot')
          : trans.__('The trial on it saves its state and waits for another slot'),
    icon: switchSlotIcon,
    isEnabled: args => mayChange(det) && foundBy(app, det, args).length > 0,
    isVisible: args => isChoosing(args) || foundBy(app, det, args).length > 0,
    execute: async args => {
      const found = foundBy(app, det, args);
      const one = isChoosing(args) ? await choose(det, found, label(args)) : found[0];
      if (one === undefined) {
        return false;
      }
      const { enabled = false, drain = false } = args;
      const path = `api/agents/${encodeURIComponent(one.agent.id)}/slots`;
      return ask(() => det.api.post(path, { slots: [one.slot.id], enabled, drain }));
    },
    describedBy: {
      args: {
        type: 'object',
        properties: {
          agent_id: { type: 'string', description: trans.__('Asked if omitted.') },
          slot_id: { type: 'integer', description: trans.__('Number of the slot there') },
          where: { type: 'string', enum: ['menu'] },
          enabled: { type: 'boolean', description: trans.__('Whether trials get it') },
          drain: { type: 'boolean', description: trans.__('Wait for the trial on it to end') }
        }
      }
    }
  });
}

function isChoosing(args: Args): boolean {
  return args.where !== 'menu' && typeof args.agent_id !== 'string';
}

/** The slots that the arguments select and for which the command is possible. */
function foundBy(app: JupyterFrontEnd, det: IDetJupyter, args: Args): IFound[] {
  const element =
    args.where === 'menu'
      ? app.contextMenuHitTest(node => node.hasAttribute(SLOT_ATTRIBUTE))
      : undefined;
  const { agent_id: agentId = '', slot_id: slotId = -1 } = args as IGiven;
  const given = element?.getAttribute(SLOT_ATTRIBUTE) ?? `${agentId} ${slotId}`;
  const meant = isChoosing(args) ? null : given;
  return (det.cluster.state?.agents ?? []).flatMap(agent =>
    agent.slots.flatMap(slot =>
      agent.is_connected &&
      (meant === null || meant === slotKey(agent, slot)) &&
      isPossible(slot, args)
        ? { agent, slot }
        : []
    )
  );
}

function slotKey(agent: IAgentBar, slot: ISlot): string {
  return `${agent.id} ${slot.id}`;
}

function isPossible({ state }: ISlot, { enabled, drain }: Args): boolean {
  if (enabled === true) {
    return state === 'disabled';
  }
  return drain === true ? state === 'used' : state !== 'disabled';
}

async function choose(
  { trans }: IDetJupyter,
  found: readonly IFound[],
  title: string
): Promise<IFound | undefined> {
  const items = found.map(({ agent, slot }) => `${agent.id} ${slot.id}: ${slot.who}`);
  const { button, value } = await InputDialog.getItem({
    title,
    items,
    okLabel: title,
    cancelLabel: trans.__('Cancel')
  });
  return button.accept && value !== null ? found[items.indexOf(value)] : undefined;
}
