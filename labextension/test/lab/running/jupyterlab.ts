/** Stand-ins of JupyterLab's packages, which draw with web components. */
import { Token } from '@lumino/coreutils';
import { vi } from 'vitest';

vi.mock('@jupyterlab/application', () => ({ ILabShell: new Token('shell') }));
vi.mock('@jupyterlab/running', () => ({ IRunningSessionManagers: new Token('running') }));
vi.mock('@jupyterlab/ui-components', () => {
  class LabIcon {
    constructor(options: { name: string; svgstr: string }) {
      this.name = options.name;
      this.svgstr = options.svgstr;
    }
    readonly name: string;
    readonly svgstr: string;
  }
  return { LabIcon, consoleIcon: new LabIcon({ name: 'console', svgstr: '' }) };
});
vi.mock('@jupyterlab/apputils', async () => {
  const { Widget } = await import('@lumino/widgets');
  class MainAreaWidget extends Widget {
    constructor({ content }: { content: InstanceType<typeof Widget> }) {
      super();
      this.content = content;
    }
    readonly content;
    readonly toolbar = { hide: vi.fn() };
    override dispose(): void {
      this.content.dispose();
      super.dispose();
    }
  }
  return {
    MainAreaWidget,
    Dialog: {
      cancelButton: (options: object) => ({ accept: false, ...options }),
      okButton: (options: object) => ({ accept: true, ...options }),
      warnButton: (options: object) => ({ accept: true, ...options })
    },
    Notification: { emit: vi.fn(), error: vi.fn(), manager: { has: () => false } },
    showDialog: vi.fn()
  };
});
