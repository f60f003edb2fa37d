/** What JupyterLab offers on a rank, by commands of running/. */
import type { CommandRegistry } from '@lumino/commands';

import type { IRankTool } from '../../dom/notice.js';
import type { ITrans } from '../../model/trans.js';
import { Commands } from '../tokens.js';

export type RankCommands = Pick<CommandRegistry, 'execute' | 'hasCommand'>;

export function rankTools(commands: RankCommands, trans: ITrans): IRankTool[] {
  const tool = (command: string, label: string, caption: string): IRankTool[] =>
    commands.hasCommand(command)
      ? [
          {
            label,
            caption,
            isLive: true,
            run: (trialId, rank) => void commands.execute(command, { trial_id: trialId, rank })
          }
        ]
      : [];
  return [
    ...tool(
      Commands.showStacks,
      trans.__('Stacks'),
      trans.__('Show where each rank is at this moment')
    ),
    ...tool(
      Commands.openConsole,
      trans.__('Console'),
      trans.__('Look into the rank while it trains; closing the console ends nothing')
    )
  ];
}
